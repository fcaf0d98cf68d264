"""The parts of lines that several kinds of them share, to values and back."""

from dataclasses import asdict
from typing import Any

from autogemm.exchange.jsonl.fields import (
    DeviceForm,
    EnvironmentForm,
    TelemetryForm,
    VerificationForm,
)
from autogemm.model.config import Config, Value
from autogemm.model.hardware.device import Device
from autogemm.model.outcome import Environment, Telemetry, Verification


def fields_of(value: object, names: str) -> dict[str, Any]:
    """The attributes of those names, which stand in one text."""
    return {name: getattr(value, name) for name in names.split()}


def where_form(device: Device, environment: Environment) -> dict[str, Any]:
    """The two fields of a line that say where it was measured."""
    return {
        "device": DeviceForm(name=device.name, facts=device.limits()),
        "environment": EnvironmentForm(**asdict(environment)),
    }


def where_of(device: DeviceForm, environment: EnvironmentForm) -> dict[str, Any]:
    """The same of a value. Raises ValueError for facts that are no device's."""
    return {"device": device_of(device), "environment": Environment(**environment.model_dump())}


def device_of(form: DeviceForm) -> Device:
    """Raises ValueError for facts that are not those of a device."""
    try:
        return Device(name=form.name, **form.facts)
    except TypeError:
        missing = sorted(Device.__dataclass_fields__.keys() - form.facts.keys() - {"name"})
        odd = sorted(form.facts.keys() - Device.__dataclass_fields__.keys())
        what = f"lack {missing[0]!r}" if missing else f"hold {odd[0]!r}"
        raise ValueError(f"the facts of the device {what}") from None


def verification_form(errors: Verification | None) -> VerificationForm | None:
    """None where nothing was compared."""
    return VerificationForm(**asdict(errors)) if errors is not None else None


def verification_of(form: VerificationForm | None) -> Verification | None:
    """None where nothing was compared."""
    return Verification(**form.model_dump()) if form is not None else None


def telemetry_form(telemetry: Telemetry) -> TelemetryForm:
    """What was sampled beside the timings."""
    return TelemetryForm(**asdict(telemetry))


def telemetry_of(form: TelemetryForm) -> Telemetry:
    """What was sampled beside the timings."""
    return Telemetry(**form.model_dump())


def config_cells(config: Config | None) -> dict[str, Any]:
    """Family and values; neither for a library's kernel."""
    return {
        "family": config.family if config is not None else None,
        "config": config.as_dict() if config is not None else None,
    }


def config_of(family: str | None, values: dict[str, Value] | None) -> Config | None:
    """Raises ValueError for one without the other."""
    if family is None and values is None:
        return None
    if family is None or values is None:
        raise ValueError("an entry has a family and a config, or neither")
    return Config.of(family, values)

"""Help with options in sections such as Problem and Output, and commands in the order of use."""

from collections.abc import Mapping, Sequence

import click

OTHERS = "Other options"


class InOrderOfUse(click.Group):
    """Lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands, most used first."""
        return list(self.commands)


class SectionedCommand(click.Command):
    """A command whose help shows its options in sections.

    ``sections`` names options by their longest name, in order; options in no section come last.
    """

    sections: Mapping[str, Sequence[str]] = {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        records = {
            max(one.opts, key=len): record
            for one in self.get_params(ctx)
            if isinstance(one, click.Option) and (record := one.get_help_record(ctx)) is not None
        }
        for title, names in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([records.pop(name) for name in names])
        if records:
            with formatter.section(OTHERS):
                formatter.write_dl(list(records.values()))


def sectioned(sections: Mapping[str, Sequence[str]]) -> type[SectionedCommand]:
    """Return a class of commands with these sections."""
    return type("Sectioned", (SectionedCommand,), {"sections": sections})

"""Values as they read in a table for people, on the terminal and on a page; texts as one line."""


def shown(value: object) -> str:
    """A cell as a person reads it: four significant digits, a dash for nothing.

    Control characters, which could drive the terminal, are shown as a replacement character.
    """
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    return "".join(
        letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}"
        for letter in str(value)
    )


def one_line(text: object, most: int = 200) -> str:
    """The text as one printable line of at most ``most`` characters: what stands in a message."""
    folded = " ".join(str(text).split())
    shown_as = "".join(letter if letter.isprintable() else "?" for letter in folded)
    return shown_as if len(shown_as) <= most else f"{shown_as[: most - 3]}..."

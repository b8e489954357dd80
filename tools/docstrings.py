"""Docstrings as they are written in gilib, plain text with Unicode equations, made into reStructuredText."""

import re

import formulas

SECTION = re.compile(r"^(Args|Arguments|Attributes|Example|Examples|Note|Raises|Returns|Yields):\s*$")
IN_BACKTICKS = re.compile(r"(`+[^`]*`+)")
GAP = re.compile(r"\s{2,}")
SPECIAL = re.compile(r"[|*\\]|(?<=\w)_(?!\w)")
LETTER_ALONE = re.compile(r"(^|:\s+)([A-Za-z])\.(?=\s|$)")


def escape(line: str, display: bool = False) -> str:
    """The line with formulas as roles, other markup characters literal, and ``D.`` not mistaken for a list.

    display: the line holds nothing but equations, and words between them.
    """
    parts = IN_BACKTICKS.split(line)
    parts[::2] = [
        "".join(_escaped(*piece, display) for piece in formulas.found(part, display)) for part in parts[::2]
    ]
    return "".join(parts)


def _escaped(formula: bool, text: str, display: bool) -> str:
    if formula:
        return formulas.role(text, r"\displaystyle " if display else "")
    return LETTER_ALONE.sub(r"\1\\\2.", SPECIAL.sub(lambda found: "\\" + found.group(), text))


def tidy(lines: list[str]) -> list[str]:
    """Line blocks from indented equations before the first section; text escaped; the rest as it was."""
    result: list[str] = []
    doctest = equation = directive = False
    before_sections = True
    for line in lines:
        before_sections &= not SECTION.match(line)
        doctest = line.lstrip().startswith(">>>") or (doctest and bool(line.strip()))
        directive = line.lstrip().startswith(".. ") or (
            directive and (line.startswith(" ") or not line.strip())
        )
        if doctest or directive:
            result.append(line)
            continue
        opens = before_sections and line.startswith("    ") and bool(result) and not result[-1].strip()
        if opens and not equation:
            result += [".. rst-class:: formula", ""]
        equation = before_sections and line.startswith("    ") and (equation or opens)
        result.append(
            "   | " + GAP.sub("\u2003", escape(line.strip(), display=True)) if equation else escape(line)
        )
    return result

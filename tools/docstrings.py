"""Docstrings as they are written in gilib, plain text with Unicode equations, made into reStructuredText."""

import re

SECTION = re.compile(r"^(Args|Arguments|Attributes|Example|Examples|Note|Raises|Returns|Yields):\s*$")
IN_BACKTICKS = re.compile(r"(`+[^`]*`+)")
SPECIAL = re.compile(r"[|*\\]|(?<=\w)_(?!\w)")
LETTER_ALONE = re.compile(r"(^|:\s+)([A-Za-z])\.(?=\s|$)")


def escape(line: str) -> str:
    """The line with markup characters outside backticks made literal, and ``D.`` not mistaken for a list."""
    parts = IN_BACKTICKS.split(line)
    plain = [SPECIAL.sub(lambda found: "\\" + found.group(), part) for part in parts[::2]]
    parts[::2] = [LETTER_ALONE.sub(r"\1\\\2.", part) for part in plain]
    return "".join(parts)


def tidy(lines: list[str]) -> list[str]:
    """Literal blocks from indented equations before the first section; text escaped; the rest as it was."""
    result: list[str] = []
    doctest = literal = directive = False
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
        if opens and not literal:
            result += ["::", ""]
        literal = before_sections and (line.startswith("    ") or not line.strip()) and (literal or opens)
        result.append(line if literal else escape(line))
    return result

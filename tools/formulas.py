"""Formulas of docstrings, in Unicode so that ``help`` shows them, found in a line of text and set in TeX."""

import re
import unicodedata
from collections.abc import Iterator

FUNCTIONS = {name: rf"\{name} " for name in "log exp det tr diag sin cos min KL Cov".split()}
NAMED = "chol vec mean dim softmax GP Gamma Poisson Bernoulli Categorical IW MN".split()
FUNCTIONS |= {name: rf"\operatorname{{{name}}}" for name in NAMED} | {"Id": r"\mathrm{Id}"}
ACCENTS = {"\u0302": "hat", "\u0303": "tilde"}
SYMBOLS = {"~": r"\sim ", "·": r"\cdot ", "½": r"\tfrac12 ", "‖": r"\Vert ", "{": r"\{", "}": r"\}"}
SCRIPTS = str.maketrans(
    dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ᵍ₀₁₂₃₄₅₆₇₈₉", "0123456789-+g0123456789", strict=True)) | {"ᵀ": r"\mathsf T "}
)

INDEX = r"(?:\{[^{}]*\}|\([^()]*\)|-?√?[A-Za-zα-ω\d½]+(?:,[a-z]+)*'*)"
TOKEN = re.compile(
    rf"""
    (?P<sum>Σ(?=_[a-zλ]\ |\ log|\ [a-z][²ᵀ]|[A-Z]²)|Π)  # any other Σ is a matrix,
    |(?P<mean>E(?=\(|\[|_[A-Za-z]\[|\ log|\ [a-z]_))    # any other E and V, too
    |(?P<variance>V(?=\ f))
    |(?P<normal>N(?=\())
    |(?P<given>(?<=\ )[|‖](?=\ ))
    |√(?P<root>\((?:[^()]|\([^()]*\))*\)|\d+|[a-z]{{2,}}|.[̂̃]?(?:_[A-Za-z\d])?)
    |(?P<accent>.[̂̃])
    |_(?P<low>{INDEX})
    |(?P<digits>[₀-₉]+)
    |(?P<high>(?:[⁰¹²³⁴-⁹⁻⁺ᵀᵍ]|\^{INDEX})+)
    |(?P<word>(?<!ᵀ)(?:Id(?=_)|[A-Za-z]{{2,}}(?:_[a-z]{{2,}})*(?:\ (?=[A-Za-z]{{2}}))?))
    |(?P<dots>\.\.\.)
    |(?P<gap>(?<=/\w)\ (?=[A-Za-z]))
    |(?P<capital>[Γ-Ω])
    |(?P<other>.)
    """,
    re.VERBOSE,
)

# `x_std` is code, but `m_sno` has the indices of samples, points and outputs.
FOREIGN = re.compile(r"[\"@#&$%\\`?!́]|[A-Za-z]\.[A-Za-z]|(?<!I)[A-Za-z]_(?!sno)[a-z]{3}|.\*|\*.")
NAME = re.compile(r"(?<!ᵀ)[A-Za-z]{2,}")
INDEXED = re.compile(
    rf"(?<![A-Za-z_])(?:[A-Za-zℓα-ωΓ-Ω][̂̃]?²?_(?!(?!sno)[a-z]{{3}}){INDEX}|Id_{INDEX}|[a-z]+_[a-z\d]\b|[a-z]+²)|√[a-z]+"
)
EVIDENCE = re.compile(
    r"[α-ωΓ-Ωℓ½√²⁻ᵀ₀-₉‖∂·⊗←∝≤≥≈̂̃]|\bN\(|(?:(?<![A-Za-z])[A-Za-z]|\))_[a-z\d]"
    r"|\bE_[A-Z]\[|(?<!\w)[A-Za-z]\S* [=~<>+/|×*-] \S|^\w\S*[=+]\S+$|\d × \d"
)
SHORT = 30  # letters that a line of a phone holds
NO_SPACE = "\\ \u200b\\ "  # a line may break here
OPERATOR = re.compile(r"[=~<>≤≥≈←∝+\-/|·×⊗*]")
BREAK = re.compile(r" (?=[=~<>≤≥≈←∝+-] )")
STOP = re.compile(r"(?<!\.\.)[,;:.]$|'s")
CALL = re.compile(r"(?<=[\w'√])\(")


def latex(formula: str) -> str:
    r"""In TeX: ``Σ_n λ_n²`` is ``\sum _{n} λ_{n}^{2}``. MathJax reads small Greek letters as they are."""
    written = "".join(map(_token, TOKEN.finditer(formula)))
    return re.sub(" +", " ", written).strip()


def _token(found: re.Match[str]) -> str:
    kind, text = str(found.lastgroup), found[str(found.lastgroup)]
    inner = text[1:-1] if text[0] + text[-1] in ("()", "{}") else text
    match kind:
        case "sum":
            return {"Σ": r"\sum ", "Π": r"\prod "}[text]
        case "mean" | "variance" | "normal":
            return {"E": r"\E ", "V": r"\Var ", "N": r"\Normal "}[text]
        case "given":
            return rf"\,{SYMBOLS.get(text, text)}\,"
        case "root":
            return rf"\sqrt{{{latex(inner)}}}"
        case "accent":
            return rf"\{ACCENTS[text[1]]}{{{text[0]}}}"
        case "low":
            return rf"_{{\text{{{inner}}}}}" if re.fullmatch("(?!sno)[a-z]{3,}", inner) else f"_{{{inner}}}"
        case "digits":
            return f"_{{{text.translate(SCRIPTS)}}}"
        case "high":
            parts = re.split(rf"\^({INDEX})", text)
            parts[1::2] = [latex(re.sub(r"^[({](.*)[)}]$", r"\1", part)) for part in parts[1::2]]
            return f"^{{{''.join(parts).translate(SCRIPTS).strip()}}}"
        case "word":
            code = "_" in text and rf"\mathtt{{{text}}}".replace("_", r"\_")
            return FUNCTIONS.get(text.strip()) or code or rf"\text{{{text}}}"
        case "dots":
            return r"\dots "
        case "gap":
            return r"\,"
        case "capital":
            return rf"\mathrm{{{text}}}"
    return SYMBOLS.get(text, text)


def found(text: str, every: bool = False) -> Iterator[tuple[bool, str]]:
    """The text in pieces, and whether each is a formula.

    A formula is a stretch of words all of which can stand in one, as `R` can, and some of which can stand
    nowhere else: with a Greek letter, an index, an operator.

    every: letters alone are formulas, too, as where a line holds nothing but equations.
    """
    words = re.split(r"(\s+)", unicodedata.normalize("NFD", text))
    at, plain = 0, ""
    while at < len(words):
        end = at if at % 2 else _reach(words, at)
        if end == at and words[at].startswith("("):
            plain, words[at] = plain + "(", words[at][1:]
            continue
        while end > at and (end % 2 == 0 or words[end - 1] == "a" or OPERATOR.fullmatch(words[end - 1])):
            end -= 1
        formula, tail = _without_tail("".join(words[at:end]))
        if formula and ((every and re.search(r"[^\W\d_]", formula)) or EVIDENCE.search(formula)):
            yield False, unicodedata.normalize("NFC", plain)
            yield True, formula
            plain, at = tail, end
        else:
            plain, at = plain + words[at], at + 1
    yield False, unicodedata.normalize("NFC", plain)


def _reach(words: list[str], at: int) -> int:
    """Where the stretch that begins at a word ends: brackets closed, at most one stop, at its end."""
    after = words[at + 2] if at + 2 < len(words) else ""
    if (
        OPERATOR.fullmatch(words[at])
        or words[at] == "mean"
        or (words[at] == "a" and not OPERATOR.match(after))
    ):
        return at
    depth, call, end = 0, False, at
    for k in range(at, len(words), 2):
        word = words[k]
        named = re.fullmatch(r"[A-Za-z]{2,}(_[a-z]+)*[,.;]?", word) and (
            words[k + 2 : k + 3] in (["·"], ["="]) or (k > at and words[k - 2] in ("·", "/"))
        )
        if not (_mathematical(word) or named or (call and not FOREIGN.search(word))):
            break
        depth += sum(map(word.count, "([{")) - sum(map(word.count, ")]}"))
        call = depth > 0 and (call or CALL.search(word) is not None)
        end = k + 1 if depth <= 0 else end
        if depth < 0 or (depth == 0 and STOP.search(word)):
            break
    return end


def _mathematical(word: str) -> bool:
    if word.startswith("..."):
        return True
    core = re.sub(r"'s$", "", CALL.split(word)[0].strip("(),;:."))
    names = NAME.findall(INDEXED.sub("", core))
    return bool(core) and not FOREIGN.search(word) and all(name in FUNCTIONS for name in names)


def _without_tail(formula: str) -> tuple[str, str]:
    end = len(formula)
    while end and (
        (formula[end - 1] in ",;:." and not formula.endswith("...", 0, end))
        or (formula[end - 1] == ")" and formula.count(")", 0, end) > formula.count("(", 0, end))
    ):
        end -= 1
    end -= 2 * formula.endswith("'s", 0, end)
    return formula[:end], formula[end:]


def role(formula: str, style: str = "") -> str:
    """The formula as a role of reStructuredText; a long one in pieces between which lines break."""
    pieces = [""]
    for piece in BREAK.split(formula) if len(formula) > SHORT else [formula]:
        if pieces[-1].count("(") > pieces[-1].count(")"):
            pieces[-1] += " " + piece
        else:
            pieces.append(piece)
    roles = [f":math:`{style}{{}}{latex(piece)}`" for piece in pieces[1:]]
    return NO_SPACE.join(roles).replace("{}", "", 1)

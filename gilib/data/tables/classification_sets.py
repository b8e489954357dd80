"""The catalogue of labelled tables: contents, sources and checksums."""

from __future__ import annotations

from dataclasses import dataclass

from gilib.data.tables.regression_sets import CC_BY, UCI


@dataclass(frozen=True)
class ClassificationSet:
    """One entry of the catalogue."""

    name: str  # short name
    file: str  # file name
    url: str  # address of the file
    num_features: int  # number of inputs D
    class_names: tuple[str, ...]  # name of each class
    labels: tuple[str, ...]  # spelling of each label in the file
    rows: int  # number of rows
    sha256: str  # checksum of the decoded inputs and labels; empty if the authors of gilib had no copy
    description: str  # meaning of the inputs and the labels
    source: str  # authors and address of the data
    label_column: str = "last"  # "last", or the name of the label column in a file with a header
    dropped: tuple[str, ...] = ()  # columns of a file with a header that are neither inputs nor labels
    licence: str = CC_BY  # licence of the data
    note: str = ""  # warnings for users of the data


_SETS = (
    ClassificationSet(
        name="spambase",
        file="spambase.data",
        url="https://archive.ics.uci.edu/ml/machine-learning-databases/spambase/spambase.data",
        num_features=57,
        class_names=("mail", "spam"),
        labels=("0", "1"),
        rows=4601,
        sha256="0c962da5173b9afb3fdd3842794db135119e4b24c7b1f6a3ab181b74f9ae2fe6",
        description="frequencies of 48 words and 6 characters in an electronic letter, and the lengths of "
        "its runs of capital letters; whether it is spam",
        source=f"Hopkins, Reeber, Forman & Suermondt (1999); {UCI}10.24432/C53G6X",
        note="The letters came to one company: words such as 'george' and '650' mark its own mail.",
    ),
    ClassificationSet(
        name="telescope",
        file="magic04.data",
        url="https://archive.ics.uci.edu/ml/machine-learning-databases/magic/magic04.data",
        num_features=10,
        class_names=("hadron", "gamma"),
        labels=("h", "g"),
        rows=19020,
        sha256="130ac29f70bf0513fd636f73406fa1267711007a86d220e4b53f0eb84d2accde",
        description="ten shape parameters of a shower's image in the MAGIC telescope, simulated; whether a "
        "gamma ray made it",
        source=f"Bock et al. (2004); {UCI}10.24432/C52C8B",
        note="The simulation has more gamma rays than hadrons; in the sky it is the other way round.",
    ),
    ClassificationSet(
        name="diabetes",
        file="diabetes.csv",
        url="https://archive.ics.uci.edu/static/public/891/data.csv",
        num_features=21,
        class_names=("none", "diabetes or prediabetes"),
        labels=("0", "1"),
        rows=253680,
        sha256="",
        description="21 answers to a survey on health in the United States, 2015; whether the person has "
        "diabetes or prediabetes",
        source=f"Centers for Disease Control and Prevention, BRFSS 2015; {UCI}10.24432/C53919",
        label_column="Diabetes_binary",
        dropped=("ID",),
        licence="as stated there",
        note="The authors of gilib had no copy: there is no checksum to hold a file to, only its shape. One "
        "person in seven is positive.",
    ),
)
CLASSIFICATION_SETS = {entry.name: entry for entry in _SETS}


def classification_names() -> tuple[str, ...]:
    """Return the names that `load_classification` accepts.

    >>> classification_names()
    ('spambase', 'telescope', 'diabetes')
    """
    return tuple(CLASSIFICATION_SETS)

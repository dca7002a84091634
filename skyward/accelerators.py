"""Accelerators by name: `sky.accelerators.A100(count=4)`, or the text "A100:4".

The catalogue is the list of factories below, with public figures of each model. `memory` is that of one accelerator,
or of the whole slice for TPU slices.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, Unpack

from skyward.errors import SpecError
from skyward.values import limits
from skyward.values.validation import FrozenMap, Value, number, of_type, shown

type FormFactor = Literal["SXM", "PCIe", "NVL"]

_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*GI?B", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Accelerator(Value):
    """A model of accelerator, and the number of them on a node.

    Attributes:
        name: name in the catalogue.
        memory: memory of one, such as "80GB"; empty for any.
        count: number per node; a fraction is a share of one.
        metadata: further facts from the catalogue, such as the manufacturer and the CUDA versions that support it.

    Raises:
        SpecError: a field has a value that is not allowed.

    Example:
        >>> sky.Compute(accelerator=sky.accelerators.A100(count=4))
    """

    name: str
    memory: str = ""
    count: float = 1
    metadata: Mapping[str, str] | None = None

    if TYPE_CHECKING:

        def __init__(
            self, name: str, memory: str = "", count: float = 1, metadata: Mapping[str, str] | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SpecError(f"Accelerator name must be a string, such as 'A100', but got {shown(self.name)}.")
        self._set(memory=_memory_text(self.memory))
        number(self.count, "Accelerator count", most=limits.ACCELERATORS)
        if self.metadata is not None:
            of_type(self.metadata, "Accelerator metadata", Mapping, "metadata={'cuda_min': '12.0'}")
            self._set(metadata=FrozenMap(self.metadata))

    @property
    def memory_gb(self) -> float | None:
        """Memory of one accelerator in GB, the nominal size that its vendor states; None if unknown."""
        return float(self.memory.removesuffix("GB")) if self.memory else None

    def with_count(self, count: float) -> "Accelerator":
        """Return the same accelerator with another count."""
        return replace(self, count=count)

    def __str__(self) -> str:
        """Return the text that `parse_accelerator` reads."""
        return f"{self.name}{f'-{self.memory}' if self.memory else ''}{f':{self.count:g}' if self.count != 1 else ''}"


def _memory_text(memory: object) -> str:
    if memory == "":
        return ""
    found = _MEMORY.fullmatch(memory.strip()) if isinstance(memory, str) else None
    if found is None:
        raise SpecError(f"Accelerator memory must be a string such as '80GB', but got {shown(memory)}.")
    return f"{found[1]}GB"


class _Family(NamedTuple):
    """Facts that the models of one architecture share."""

    manufacturer: str
    architecture: str
    cuda_min: str = ""
    cuda_max: str = ""


class Model:
    """Row of the catalogue; a call returns the accelerator."""

    __slots__ = ("__name__", "family", "memory")

    def __init__(self, name: str, memory: str, family: _Family) -> None:
        self.__name__ = name
        self.memory = memory
        self.family = family

    def __call__(self, *, count: float = 1) -> Accelerator:
        """Return `count` accelerators of this model per node."""
        return _make(self.__name__, self.memory, count, self.family)

    def __repr__(self) -> str:
        return f"<sky.accelerators.{self.__name__}>"


def _make(name: str, memory: str, count: float, family: _Family, form_factor: str | None = None) -> Accelerator:
    known = {**family._asdict(), "form_factor": form_factor}
    return Accelerator(name, memory, count, {key: value for key, value in known.items() if value})


def _variant(name: str, memory: str, *allowed: str) -> str:
    if memory not in allowed:
        raise SpecError(f"{name} comes with {' or '.join(allowed)}, but got {shown(memory)}.")
    return memory


def _form(name: str, form_factor: str | None, *allowed: str) -> str | None:
    if form_factor is not None and form_factor not in allowed:
        raise SpecError(f"{name} comes as {' or '.join(allowed)}, but got {shown(form_factor)}.")
    return form_factor


# The last CUDA version that supports each: 11.8 for Kepler, 12.9 for Pascal and Volta.
_KEPLER = _Family("NVIDIA", "Kepler", "6.5", "11.8")
_PASCAL = _Family("NVIDIA", "Pascal", "8.0", "12.9")
_VOLTA = _Family("NVIDIA", "Volta", "9.0", "12.9")
_TURING = _Family("NVIDIA", "Turing", "10.0")
_GA100 = _Family("NVIDIA", "Ampere", "11.0")
_AMPERE = _Family("NVIDIA", "Ampere", "11.1")
_ADA = _Family("NVIDIA", "Ada Lovelace", "11.8")
_HOPPER = _Family("NVIDIA", "Hopper", "11.8")
_BLACKWELL = _Family("NVIDIA", "Blackwell", "12.8")
_GCN = _Family("AMD", "GCN 5")
_RDNA1 = _Family("AMD", "RDNA 1")
_RDNA3 = _Family("AMD", "RDNA 3")
_CDNA1 = _Family("AMD", "CDNA 1")
_CDNA2 = _Family("AMD", "CDNA 2")
_CDNA3 = _Family("AMD", "CDNA 3")
_TRAINIUM = _Family("AWS", "Trainium")
_INFERENTIA = _Family("AWS", "Inferentia")
_GAUDI = _Family("Intel", "Gaudi")
_TPU = _Family("Google", "TPU")


def H100(
    *, count: float = 1, memory: Literal["40GB", "80GB", "94GB"] | None = None, form_factor: FormFactor | None = None
) -> Accelerator:
    """Return NVIDIA H100: 80 GB, or 94 GB as NVL."""
    chosen = memory or ("94GB" if form_factor == "NVL" else "80GB")
    form_factor_known = _form("H100", form_factor, "SXM", "PCIe", "NVL")
    return _make("H100", _variant("H100", chosen, "40GB", "80GB", "94GB"), count, _HOPPER, form_factor_known)


def H200(*, count: float = 1, form_factor: Literal["SXM", "NVL"] | None = None) -> Accelerator:
    """Return NVIDIA H200: 141 GB."""
    return _make("H200", "141GB", count, _HOPPER, _form("H200", form_factor, "SXM", "NVL"))


def A100(*, count: float = 1, memory: Literal["40GB", "80GB"] = "80GB") -> Accelerator:
    """Return NVIDIA A100: 80 GB, or 40 GB."""
    return _make("A100", _variant("A100", memory, "40GB", "80GB"), count, _GA100)


def V100(*, count: float = 1, memory: Literal["16GB", "32GB"] = "16GB") -> Accelerator:
    """Return NVIDIA V100: 16 GB, or 32 GB."""
    return _make("V100", _variant("V100", memory, "16GB", "32GB"), count, _VOLTA)


def Custom(
    name: str, *, memory: str = "", count: float = 1, cuda_min: str | None = None, cuda_max: str | None = None
) -> Accelerator:
    """Return an accelerator that is not in the catalogue."""
    known = {"cuda_min": cuda_min, "cuda_max": cuda_max}
    return Accelerator(name, memory, count, {key: value for key, value in known.items() if value} or None)


GH200 = Model("GH200", "96GB", _HOPPER)
B100 = Model("B100", "192GB", _BLACKWELL)
B200 = Model("B200", "180GB", _BLACKWELL)
GB200 = Model("GB200", "186GB", _BLACKWELL)
A800 = Model("A800", "80GB", _GA100)
A40 = Model("A40", "48GB", _AMPERE)
A10 = Model("A10", "24GB", _AMPERE)
A10G = Model("A10G", "24GB", _AMPERE)
A16 = Model("A16", "16GB", _AMPERE)
A2 = Model("A2", "16GB", _AMPERE)
L4 = Model("L4", "24GB", _ADA)
L40 = Model("L40", "48GB", _ADA)
L40S = Model("L40S", "48GB", _ADA)
T4 = Model("T4", "16GB", _TURING)
T4G = Model("T4G", "16GB", _TURING)
P100 = Model("P100", "16GB", _PASCAL)
P40 = Model("P40", "24GB", _PASCAL)
P4 = Model("P4", "8GB", _PASCAL)
K80 = Model("K80", "12GB", _KEPLER)
RTX_5090 = Model("RTX_5090", "32GB", _BLACKWELL)
RTX_5080 = Model("RTX_5080", "16GB", _BLACKWELL)
RTX_5070_Ti = Model("RTX_5070_Ti", "16GB", _BLACKWELL)
RTX_5070 = Model("RTX_5070", "12GB", _BLACKWELL)
RTX_5060_Ti = Model("RTX_5060_Ti", "16GB", _BLACKWELL)
RTX_5060 = Model("RTX_5060", "8GB", _BLACKWELL)
RTX_4090 = Model("RTX_4090", "24GB", _ADA)
RTX_4090D = Model("RTX_4090D", "24GB", _ADA)
RTX_4080_Super = Model("RTX_4080_Super", "16GB", _ADA)
RTX_4080 = Model("RTX_4080", "16GB", _ADA)
RTX_4070_Ti_Super = Model("RTX_4070_Ti_Super", "16GB", _ADA)
RTX_4070_Ti = Model("RTX_4070_Ti", "12GB", _ADA)
RTX_4070_Super = Model("RTX_4070_Super", "12GB", _ADA)
RTX_4070 = Model("RTX_4070", "12GB", _ADA)
RTX_4060_Ti = Model("RTX_4060_Ti", "8GB", _ADA)
RTX_4060 = Model("RTX_4060", "8GB", _ADA)
RTX_3090_Ti = Model("RTX_3090_Ti", "24GB", _AMPERE)
RTX_3090 = Model("RTX_3090", "24GB", _AMPERE)
RTX_3080_Ti = Model("RTX_3080_Ti", "12GB", _AMPERE)
RTX_3080 = Model("RTX_3080", "10GB", _AMPERE)
RTX_3070_Ti = Model("RTX_3070_Ti", "8GB", _AMPERE)
RTX_3070 = Model("RTX_3070", "8GB", _AMPERE)
RTX_3060_Ti = Model("RTX_3060_Ti", "8GB", _AMPERE)
RTX_3060 = Model("RTX_3060", "12GB", _AMPERE)
RTX_3060_Laptop = Model("RTX_3060_Laptop", "6GB", _AMPERE)
RTX_3050 = Model("RTX_3050", "8GB", _AMPERE)
RTX_2080_Ti = Model("RTX_2080_Ti", "11GB", _TURING)
RTX_2080_Super = Model("RTX_2080_Super", "8GB", _TURING)
RTX_2080 = Model("RTX_2080", "8GB", _TURING)
RTX_2070_Super = Model("RTX_2070_Super", "8GB", _TURING)
RTX_2070 = Model("RTX_2070", "8GB", _TURING)
RTX_2060_Super = Model("RTX_2060_Super", "8GB", _TURING)
RTX_2060 = Model("RTX_2060", "6GB", _TURING)
GTX_1660_Ti = Model("GTX_1660_Ti", "6GB", _TURING)
GTX_1660_Super = Model("GTX_1660_Super", "6GB", _TURING)
GTX_1660 = Model("GTX_1660", "6GB", _TURING)
GTX_1080_Ti = Model("GTX_1080_Ti", "11GB", _PASCAL)
GTX_1080 = Model("GTX_1080", "8GB", _PASCAL)
GTX_1070_Ti = Model("GTX_1070_Ti", "8GB", _PASCAL)
GTX_1070 = Model("GTX_1070", "8GB", _PASCAL)
GTX_1060 = Model("GTX_1060", "6GB", _PASCAL)
Titan_Xp = Model("Titan_Xp", "12GB", _PASCAL)
Titan_V = Model("Titan_V", "12GB", _VOLTA)
RTX_6000_Ada = Model("RTX_6000_Ada", "48GB", _ADA)
RTX_5880_Ada = Model("RTX_5880_Ada", "48GB", _ADA)
RTX_5000_Ada = Model("RTX_5000_Ada", "32GB", _ADA)
RTX_PRO_6000 = Model("RTX_PRO_6000", "96GB", _BLACKWELL)
RTX_PRO_4500 = Model("RTX_PRO_4500", "32GB", _BLACKWELL)
RTX_PRO_4000 = Model("RTX_PRO_4000", "24GB", _BLACKWELL)
RTX_A6000 = Model("RTX_A6000", "48GB", _AMPERE)
RTX_A5000 = Model("RTX_A5000", "24GB", _AMPERE)
RTX_A5000_Pro = Model("RTX_A5000_Pro", "24GB", _AMPERE)
RTX_A4000 = Model("RTX_A4000", "16GB", _AMPERE)
RTX_A2000 = Model("RTX_A2000", "6GB", _AMPERE)
Quadro_RTX_8000 = Model("Quadro_RTX_8000", "48GB", _TURING)
Quadro_RTX_6000 = Model("Quadro_RTX_6000", "24GB", _TURING)
Quadro_RTX_5000 = Model("Quadro_RTX_5000", "16GB", _TURING)
Quadro_RTX_4000 = Model("Quadro_RTX_4000", "8GB", _TURING)
Quadro_P4000 = Model("Quadro_P4000", "8GB", _PASCAL)
MI300X = Model("MI300X", "192GB", _CDNA3)
MI300B = Model("MI300B", "", _CDNA3)
MI300A = Model("MI300A", "128GB", _CDNA3)
MI250X = Model("MI250X", "128GB", _CDNA2)
MI250 = Model("MI250", "128GB", _CDNA2)
MI210 = Model("MI210", "64GB", _CDNA2)
MI100 = Model("MI100", "32GB", _CDNA1)
MI50 = Model("MI50", "16GB", _GCN)
Instinct_MI25 = Model("Instinct_MI25", "16GB", _GCN)
RadeonPro_V710 = Model("RadeonPro_V710", "28GB", _RDNA3)
RadeonPro_V520 = Model("RadeonPro_V520", "8GB", _RDNA1)
Trainium1 = Model("Trainium1", "32GB", _TRAINIUM)
Trainium2 = Model("Trainium2", "96GB", _TRAINIUM)
Trainium3 = Model("Trainium3", "144GB", _TRAINIUM)
Inferentia1 = Model("Inferentia1", "8GB", _INFERENTIA)
Inferentia2 = Model("Inferentia2", "32GB", _INFERENTIA)
Gaudi = Model("Gaudi", "32GB", _GAUDI)
Gaudi2 = Model("Gaudi2", "96GB", _GAUDI)
Gaudi3 = Model("Gaudi3", "128GB", _GAUDI)
TPUv2 = Model("TPUv2", "16GB", _TPU)
TPUv3 = Model("TPUv3", "32GB", _TPU)
TPUv4 = Model("TPUv4", "32GB", _TPU)
TPUv5e = Model("TPUv5e", "16GB", _TPU)
TPUv5p = Model("TPUv5p", "95GB", _TPU)
TPUv6 = Model("TPUv6", "32GB", _TPU)
TPUv2_8 = Model("TPUv2_8", "64GB", _TPU)
TPUv3_8 = Model("TPUv3_8", "128GB", _TPU)
TPUv3_32 = Model("TPUv3_32", "512GB", _TPU)
TPUv4_64 = Model("TPUv4_64", "1024GB", _TPU)
TPUv5e_4 = Model("TPUv5e_4", "64GB", _TPU)
TPUv5p_8 = Model("TPUv5p_8", "380GB", _TPU)


class Overrides(TypedDict, total=False):
    """Arguments of `from_name`; each model accepts some of them."""

    count: float
    memory: str
    form_factor: str


_SPECIAL: tuple[Callable[..., Accelerator], ...] = (H100, H200, A100, V100)
_CATALOGUE: dict[str, Callable[..., Accelerator]] = {
    **{factory.__name__: factory for factory in _SPECIAL},
    **{name: value for name, value in globals().items() if isinstance(value, Model)},
}


def _key(name: str) -> str:
    """Return `name` without case, separators and manufacturer, as a lookup key."""
    key = re.sub(r"[\s_-]", "", name).lower()
    return re.sub(r"^(nvidia|amd|intel|habana|google|aws)?(tesla|geforce)?", "", key)


def _keys() -> Iterator[tuple[str, str]]:
    """Yield every spelling of the names in the catalogue, and the name; earlier ones take precedence."""
    yield from ((_key(name), name) for name in _CATALOGUE)
    yield from ((re.sub(r"^(rtx|gtx|quadro|instinct|radeonpro)", "", _key(name)), name) for name in _CATALOGUE)


_BY_KEY = dict(reversed(list(_keys())))


def names() -> tuple[str, ...]:
    """Return the names of the catalogue."""
    return tuple(_CATALOGUE)


def from_name(name: str, **overrides: Unpack[Overrides]) -> Accelerator:
    """Return the accelerator of that name in the catalogue; case and separators do not matter.

    Raises:
        SpecError: the name is unknown, or the model does not take one of `overrides`.
    """
    found = _BY_KEY.get(_key(name)) if isinstance(name, str) else None
    if found is None:
        raise SpecError(_unknown(name))
    factory = _CATALOGUE[found]
    given: dict[str, Any] = dict(overrides)
    if "memory" in given:
        given["memory"] = _memory_text(given["memory"])
    takes: Iterable[str] = ("count",) if isinstance(factory, Model) else factory.__kwdefaults__ or ()
    if "memory" not in takes and given.get("memory") == factory().memory:
        del given["memory"]
    for override, value in given.items():
        if override not in takes:
            known = f"it has {factory().memory}" if override == "memory" else f"it takes {', '.join(takes)}"
            raise SpecError(f"{found} does not come with {override} {value!r}; {known}.")
    return factory(**given)


def _unknown(name: object) -> str:
    import difflib  # only for an error

    close = difflib.get_close_matches(_key(str(name)), _BY_KEY, n=3, cutoff=0.6)
    names = dict.fromkeys(_BY_KEY[key] for key in close)
    fix = f"did you mean {' or '.join(names)}" if names else "see `sky.accelerators` for the names"
    return f"There is no accelerator {name!r}; {fix}; use `sky.accelerators.Custom(...)` for any other model."


_COUNT = r"[0-9]{1,18}(?:\.[0-9]{1,18})?|\.[0-9]{1,18}"
_TEXT = re.compile(rf"(?:(?P<before>{_COUNT})\s*[xX*]\s*)?(?P<name>[^:]*?)(?:\s*:\s*(?P<after>{_COUNT}))?")
_FORM = re.compile(r"(SXM|PCIe|NVL)[0-9]?", re.IGNORECASE)
_FORMS: dict[str, FormFactor] = {"sxm": "SXM", "pcie": "PCIe", "nvl": "NVL"}


def parse_accelerator(text: str) -> Accelerator:
    """Return the accelerators that `text` names: "A100", "A100:4", "4xA100", "H100-80GB", "A100-SXM4-40GB:8".

    Raises:
        SpecError: the catalogue has no such accelerator, or the text has the wrong format.
    """
    found = _TEXT.fullmatch(text.strip())
    if found is None or not found["name"] or (found["before"] and found["after"]):
        raise SpecError(f"accelerator must be NAME, NAME:COUNT or COUNTxNAME, such as A100:4, but got {shown(text)}.")
    overrides: Overrides = {}
    if count := found["before"] or found["after"]:
        overrides["count"] = int(count) if count.isdigit() else float(count)
    if _key(found["name"]) in _BY_KEY:
        return from_name(found["name"], **overrides)
    first, *rest = re.split(r"[\s_-]+", found["name"])
    words = [first]
    for word in rest:
        if _MEMORY.fullmatch(word):
            overrides["memory"] = word
        elif form := _FORM.fullmatch(word):
            overrides["form_factor"] = _FORMS[form[1].lower()]
        elif not re.fullmatch(r"HBM[0-9]\w?", word, re.IGNORECASE):
            words.append(word)
    name = " ".join(words)
    if _BY_KEY.get(_key(name)) not in ("H100", "H200"):
        overrides.pop("form_factor", None)  # other models have no variants by form factor
    return from_name(name, **overrides)


class Described(NamedTuple):
    """Accelerator as a provider describes it.

    Attributes:
        model: the name in the catalogue; if it has none, the normalized text.
        memory_gb: nominal memory of one in GB, as the vendor states it; None if unknown.
        form_factor: "SXM", "PCIe" or "NVL"; None if unknown.
    """

    model: str
    memory_gb: float | None
    form_factor: str | None


_NOISE = re.compile(r"HBM[0-9]\w?|GDDR[0-9]\w?|OAM|GPU|GENERATION|EDITION|SERVER|WORKSTATION|BLACKWELL", re.IGNORECASE)
_JOINED_FORM = re.compile(r"(?<=[0-9])(SXM|PCIe|NVL)[0-9]?$", re.IGNORECASE)


@lru_cache(maxsize=4096)  # providers list the same names thousands of times
def describe(text: str) -> Described:
    """Return the model that a provider's `text` describes, such as "8x NVIDIA A100-SXM4-80GB". Accepts any text.

    Vendor, count, memory and form factor are split off, so different spellings compare equal by `model`.
    """
    name = re.sub(rf"^\s*(?:{_COUNT})\s*[xX*]\s+|^\s*[0-9]+[xX*](?=[A-Za-z])|\s*:\s*(?:{_COUNT})\s*$", "", text)
    name = re.sub(r"(?<=[0-9])[\s_-]+(?=GI?B\b)", "", name, flags=re.IGNORECASE)
    words, memory, form = [], None, None
    for word in re.split(r"[\s_/()-]+", name):
        if size := _MEMORY.fullmatch(word):
            memory = float(size[1])
        elif found := _FORM.fullmatch(word):
            form = _FORMS[found[1].lower()]
        elif not _NOISE.fullmatch(word):
            if found := _JOINED_FORM.search(word):
                form, word = _FORMS[found[1].lower()], word[: found.start()]
            words.append(word)
    joined = _key("".join(words))
    for key in (_key(name), joined, joined.removeprefix("instinct")):
        if key in _BY_KEY:
            return Described(_BY_KEY[key], memory, form)
    return Described(joined, memory, form)


def catalogue_name(text: str) -> str:
    """Return the name that `parse_accelerator` reads for a provider's `text`; the text itself if it has none."""
    sold = describe(text)
    if sold.model not in _CATALOGUE:
        return text
    form = f"-{sold.form_factor}" if sold.form_factor and sold.model in ("H100", "H200") else ""
    memory = f"-{sold.memory_gb:g}GB" if sold.memory_gb is not None and has_variants(sold.model) else ""
    return f"{sold.model}{form}{memory}"


def has_variants(model: str) -> bool:
    """Return whether the model of the catalogue comes with different amounts of memory."""
    factory = _CATALOGUE.get(model)
    return factory is not None and not isinstance(factory, Model) and "memory" in (factory.__kwdefaults__ or {})

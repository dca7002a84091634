"""The settings of Accelerate, and the environment variables from which it reads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from skyward.errors import SpecError
from skyward.values.validation import FrozenMap, closest, shown

__all__ = ["GROUPS", "SETTINGS", "Setting", "SettingGroup", "frozen_config", "variables_of"]


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting.

    Attributes:
        variable: the variable from which Accelerate reads it.
        kind: type of its values, or the allowed values.
    """

    variable: str
    kind: type[bool] | type[int] | type[float] | type[str] | tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class SettingGroup:
    """Settings that belong together.

    Attributes:
        switch: the variable that makes Accelerate read them; empty if it always does.
        settings: the settings, by name.
    """

    switch: str
    settings: Mapping[str, Setting]


def _named(prefix: str, **kinds: Any) -> dict[str, Setting]:
    """Return settings whose variables have their names, after a prefix."""
    return {name: Setting(f"{prefix}{name.upper()}", kind) for name, kind in kinds.items()}


_SHARDING: Final = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
_DEVICES: Final = ("none", "cpu", "nvme")

SETTINGS: Final[Mapping[str, Setting]] = {
    "mixed_precision": Setting("ACCELERATE_MIXED_PRECISION", ("no", "fp16", "bf16", "fp8")),
    "gradient_accumulation_steps": Setting("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", int),
    "use_cpu": Setting("ACCELERATE_USE_CPU", bool),
    "debug": Setting("ACCELERATE_DEBUG_MODE", bool),
    "cpu_affinity": Setting("ACCELERATE_CPU_AFFINITY", bool),
}

GROUPS: Final[Mapping[str, SettingGroup]] = {
    "dynamo": SettingGroup(
        "",
        _named(
            "ACCELERATE_DYNAMO_",
            backend=str,
            mode=("default", "reduce-overhead", "max-autotune"),
            use_fullgraph=bool,
            use_dynamic=bool,
            use_regional_compilation=bool,
        ),
    ),
    "fsdp": SettingGroup(
        "ACCELERATE_USE_FSDP",
        {
            **_named(
                "FSDP_",
                version=(1, 2),
                sharding_strategy=_SHARDING,
                offload_params=bool,
                min_num_params=int,
                auto_wrap_policy=("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"),
                backward_prefetch=("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"),
                forward_prefetch=bool,
                state_dict_type=("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"),
                use_orig_params=bool,
                cpu_ram_efficient_loading=bool,
                sync_module_states=bool,
                activation_checkpointing=bool,
                activation_checkpointing_offload=bool,
                ignored_modules=str,
                reshard_after_forward=bool,
            ),
            "transformer_layer_cls_to_wrap": Setting("FSDP_TRANSFORMER_CLS_TO_WRAP", str),
        },
    ),
    "deepspeed": SettingGroup(
        "ACCELERATE_USE_DEEPSPEED",
        {
            **_named(
                "ACCELERATE_DEEPSPEED_",
                zero_stage=(0, 1, 2, 3),
                offload_optimizer_device=_DEVICES,
                offload_param_device=_DEVICES,
                offload_optimizer_nvme_path=str,
                offload_param_nvme_path=str,
                zero3_save_16bit_model=bool,
                config_file=str,
                moe_layer_cls_names=str,
            ),
            "gradient_clipping": Setting("ACCELERATE_GRADIENT_CLIPPING", float),
            "zero3_init_flag": Setting("ACCELERATE_DEEPSPEED_ZERO3_INIT", bool),
        },
    ),
    "parallelism": SettingGroup(
        "ACCELERATE_USE_PARALLELISM_CONFIG",
        _named(
            "PARALLELISM_CONFIG_",
            dp_replicate_size=int,
            dp_shard_size=int,
            tp_size=int,
            cp_size=int,
            cp_backend=str,
            cp_comm_strategy=("allgather", "alltoall"),
            sp_size=int,
            sp_backend=str,
            sp_seq_length=int,
            sp_seq_length_is_variable=bool,
            sp_attn_implementation=str,
        ),
    ),
}

_ONLY_IN_FSDP: Final = {
    1: ("sharding_strategy", "backward_prefetch", "forward_prefetch", "use_orig_params", "sync_module_states"),
    2: ("reshard_after_forward", "activation_checkpointing_offload"),
}
"""Settings that only one of the versions of FSDP has. Accelerate's default is 1."""

_WORDS: Final = {bool: "True or False", int: "a whole number", float: "a positive number", str: "a string"}


def frozen_config(config: object) -> FrozenMap[str, Any]:
    """Return a configuration that cannot change.

    Raises:
        SpecError: it is not a mapping.
    """
    if not isinstance(config, Mapping):
        example = "config={'mixed_precision': 'bf16'}"
        raise SpecError(f"config must be a dict, as in `{example}`, but got {shown(config)}.")
    return FrozenMap({name: FrozenMap(each) if isinstance(each, Mapping) else each for name, each in config.items()})


def variables_of(config: Mapping[str, Any]) -> FrozenMap[str, str]:
    """Return the variables for a configuration.

    Raises:
        SpecError: a key is unknown, a value is not allowed, or two settings exclude each other.
    """
    found: dict[str, str] = {}
    for name, value in config.items():
        if name in GROUPS:
            found.update(_of_group(name, GROUPS[name], value))
        elif name in SETTINGS:
            found[SETTINGS[name].variable] = _text(name, SETTINGS[name], value)
        else:
            raise SpecError(f"config has an unknown key {name!r}; {closest(str(name), {*SETTINGS, *GROUPS})}")
    if "fsdp" in config and "deepspeed" in config:
        raise SpecError("config has 'fsdp' and 'deepspeed', which exclude each other: take one out.")
    if "fsdp" in config:
        _check_fsdp(config["fsdp"])
    return FrozenMap(found)


def _of_group(name: str, group: SettingGroup, values: object) -> dict[str, str]:
    if not isinstance(values, Mapping):
        raise SpecError(f"config must set {name!r} to a dict of its settings, but got {shown(values)}.")
    found = {group.switch: "true"} if group.switch else {}
    for key, value in values.items():
        if key not in group.settings:
            raise SpecError(f"config has an unknown key {key!r} in {name!r}; {closest(str(key), group.settings)}")
        setting = group.settings[key]
        found[setting.variable] = _text(f"{name}.{key}", setting, value)
    return found


def _check_fsdp(values: Mapping[str, Any]) -> None:
    other = 1 if values.get("version") == 2 else 2
    for key in _ONLY_IN_FSDP[other]:
        if key in values:
            raise SpecError(
                f"config has 'fsdp.{key}', which only version {other} of FSDP has: take it out, or set "
                f"'fsdp.version' to {other}."
            )


def _text(path: str, setting: Setting, value: object) -> str:
    """Return the value of a variable."""
    match setting.kind:
        case tuple() as allowed:
            if not any(type(value) is type(each) and value == each for each in allowed):
                choices = ", ".join(repr(each) for each in allowed)
                raise SpecError(f"config must set {path!r} to one of {choices}, but got {shown(value)}.")
            return str(value)
        case kind if kind is bool and isinstance(value, bool):
            return "true" if value else "false"
        case kind if kind is int and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return str(value)
        case kind if kind is float and isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return str(value)
        case kind if kind is str and isinstance(value, str) and value:
            return value
    raise SpecError(f"config must set {path!r} to {_WORDS[setting.kind]}, but got {shown(value)}.")

"""Instant fleets: moto's leave out most of the launch template, and know no errors of single places."""

import base64
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.utils import convert_tag_spec

from tests.fakes.aws.catalogue import on_demand_price, spot_price
from tests.fakes.aws.forms import Request

__all__ = ["FleetRefusedError", "create_fleet"]

_MOST_OVERRIDES = 300
_USER_DATA = 16 * 1024
_SPOT = ("price-capacity-optimized", "capacity-optimized", "lowest-price", "diversified")


class FleetRefusedError(Exception):
    """A fleet was refused.

    Attributes:
        code: code of the error.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def create_fleet(
    backend: Any, request: Request, capacity: dict[tuple[str, str], int], refusals: Mapping[tuple[str, str], str]
) -> tuple[str, list[Any]]:
    """Launch the machines of an instant fleet; return the content of the answer, and the machines."""
    (config,) = request.values["LaunchTemplateConfigs"]
    target = request.values["TargetCapacitySpecification"]
    market = target["DefaultTargetCapacityType"]
    _check(request, config, market)
    template = config["LaunchTemplateSpecification"]
    data = _template(backend, template)
    left, errors, launched = int(target["TotalTargetCapacity"]), [], []
    places = [(each, backend.get_subnet(each["SubnetId"]).availability_zone) for each in config["Overrides"]]
    price = spot_price if market == "spot" else lambda kind, zone: on_demand_price(kind)
    for override, zone in sorted(places, key=lambda place: price(place[0]["InstanceType"], place[1])):
        kind = override["InstanceType"]
        code = refusals.get((kind, zone)) or refusals.get((kind, "*")) or refusals.get(("*", "*"))
        free = min(left, capacity.get((kind, zone), left))
        if market == "spot" and float(override.get("MaxPrice", "inf")) < price(kind, zone):
            code = "SpotMaxPriceTooLow"
        if left and (code or free < left):
            errors.append(_error(override, market, code or "InsufficientInstanceCapacity"))
        if code or not free:
            continue
        machines = _launch(backend, request.region, data, override, free, market)
        if (kind, zone) in capacity:
            capacity[kind, zone] -= free
        left -= free
        launched.append((override, machines))
    content = "".join(_launched(override, machines, market, template) for override, machines in launched)
    answer = (
        f"<fleetId>fleet-0123</fleetId><errorSet>{''.join(errors)}</errorSet>"
        f"<fleetInstanceSet>{content}</fleetInstanceSet>"
    )
    return answer, [machine for _, machines in launched for machine in machines]


def _check(request: Request, config: Mapping[str, Any], market: str) -> None:
    """Refuse what EC2 refuses."""
    overrides = config.get("Overrides", [])
    kinds = {each["ResourceType"] for each in request.values.get("TagSpecification", ())}
    wrong = (
        request.values["Type"] != "instant"
        or not 0 < len(overrides) <= _MOST_OVERRIDES
        or not kinds <= {"fleet", "instance"}
        or (market == "spot" and request.values["SpotOptions"]["AllocationStrategy"] not in _SPOT)
        or (market != "spot" and "SpotOptions" in request.values)
        or len({(each["InstanceType"], each["SubnetId"]) for each in overrides}) != len(overrides)
    )
    if wrong:
        raise FleetRefusedError("InvalidParameterValue", "The fleet is not valid.")
    if unknown := [each["InstanceType"] for each in overrides if each["InstanceType"] not in INSTANCE_TYPES]:
        raise FleetRefusedError("InvalidInstanceType", f"Invalid value '{unknown[0]}' for InstanceType.")


def _template(backend: Any, named: Mapping[str, str]) -> Mapping[str, Any]:
    template = backend.launch_templates.get(named["LaunchTemplateId"])
    if template is None:
        raise FleetRefusedError("InvalidLaunchTemplateId.NotFound", "The launch template does not exist.")
    data: Mapping[str, Any] = template.get_version(named["Version"]).data
    if len(base64.b64decode(data["UserData"])) > _USER_DATA:
        raise FleetRefusedError("InvalidUserData.Malformed", "User data is limited to 16384 bytes")
    return data


def _launch(
    backend: Any, region: str, data: Mapping[str, Any], override: Mapping[str, str], count: int, market: str
) -> list[Any]:
    (interface,) = data["NetworkInterfaces"]
    reservation = backend.run_instances(
        data["ImageId"],
        count,
        data["UserData"],
        [],
        security_group_ids=[*interface["Groups"]],
        instance_type=override["InstanceType"],
        is_instance_type_default=False,
        region_name=region,
        subnet_id=override["SubnetId"],
        associate_public_ip=str(interface["AssociatePublicIpAddress"]).lower() == "true",
        tags=convert_tag_spec(data["TagSpecifications"]),
        block_device_mappings=data["BlockDeviceMappings"],
        metadata_options=data["MetadataOptions"],
        instance_initiated_shutdown_behavior=data["InstanceInitiatedShutdownBehavior"],
        lifecycle="spot" if market == "spot" else None,
    )
    machines: list[Any] = reservation.instances
    return machines


def _place(override: Mapping[str, str]) -> str:
    return (
        f"<overrides><instanceType>{override['InstanceType']}</instanceType>"
        f"<subnetId>{override['SubnetId']}</subnetId></overrides>"
    )


def _error(override: Mapping[str, str], market: str, code: str) -> str:
    return (
        f"<item><launchTemplateAndOverrides>{_place(override)}</launchTemplateAndOverrides>"
        f"<lifecycle>{market}</lifecycle><errorCode>{escape(code)}</errorCode>"
        f"<errorMessage>We cannot launch {override['InstanceType']}: {escape(code)}.</errorMessage></item>"
    )


def _launched(override: Mapping[str, str], machines: list[Any], market: str, template: Mapping[str, str]) -> str:
    ids = "".join(f"<item>{machine.id}</item>" for machine in machines)
    named = (
        f"<launchTemplateSpecification><launchTemplateId>{template['LaunchTemplateId']}</launchTemplateId>"
        f"<version>{template['Version']}</version></launchTemplateSpecification>"
    )
    return (
        f"<item><launchTemplateAndOverrides>{named}{_place(override)}</launchTemplateAndOverrides>"
        f"<lifecycle>{market}</lifecycle><instanceIds>{ids}</instanceIds>"
        f"<instanceType>{override['InstanceType']}</instanceType></item>"
    )

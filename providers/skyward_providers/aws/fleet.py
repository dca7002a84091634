"""Launches: a launch template with one version per request, and a fleet over types and zones."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skyward.errors import ProvisioningError
from skyward.providers import Market
from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.failures import CallError, explained, is_transient, refusal_of
from skyward_providers.aws_account.launches import pauses, send_launch, short_token, wait
from skyward_providers.aws_account.network import tag_list

__all__ = ["FleetRequest", "Launched", "create_template", "delete_template", "launch", "template_name", "user_data"]


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """A launch.

    Attributes:
        region: where.
        template: id of the launch template.
        data: content of the template's version for this request.
        places: types and subnets to choose among.
        market: the market to buy in.
        strategy: how to choose among spot machines.
        most: maximum price of one machine in USD per hour; None for none.
        tags: tags of the fleet.
        request: idempotency token.
    """

    region: str
    template: str
    data: Mapping[str, Any]
    places: Sequence[tuple[str, str]]
    market: Market
    strategy: str
    most: float | None
    tags: Mapping[str, str]
    request: str


@dataclass(frozen=True, slots=True)
class Launched:
    """A machine that a fleet launched.

    Attributes:
        id: its id.
        type: its type.
        subnet: its subnet; "" if unknown.
    """

    id: str
    type: str
    subnet: str


def template_name(pool: str, offer: str) -> str:
    """Return the name of the launch template of a pool for an offer."""
    return f"skyward-{pool}-{hashlib.blake2b(offer.encode(), digest_size=4).hexdigest()}"


async def create_template(
    account: Account, region: str, name: str, data: Mapping[str, Any], tags: Mapping[str, str]
) -> str:
    """Create a launch template, unless it exists; return its id.

    Raises:
        ProvisioningError: somebody else has a template of that name.
    """
    try:
        created = await account.call(
            "ec2",
            "create_launch_template",
            region,
            LaunchTemplateName=name,
            LaunchTemplateData=data,
            ClientToken=short_token(name),
            TagSpecifications=[{"ResourceType": "launch-template", "Tags": tag_list(tags)}],
        )
        return str(created["LaunchTemplate"]["LaunchTemplateId"])
    except CallError as error:
        if error.code not in ("InvalidLaunchTemplateName.AlreadyExistsException", "IdempotentParameterMismatch"):
            raise
    found = await account.all("ec2", "describe_launch_templates", region, "LaunchTemplates", LaunchTemplateNames=[name])
    owned = {each["Key"]: each["Value"] for each in found[0].get("Tags", ())} if found else {}
    if not found or any(owned.get(key) != value for key, value in tags.items()):
        raise ProvisioningError(f"Launch template {name!r} in {region} is not of this pool: delete or rename it.")
    return str(found[0]["LaunchTemplateId"])


async def delete_template(account: Account, region: str, template: str) -> None:
    """Delete a launch template with all its versions. Idempotent."""
    try:
        await account.call("ec2", "delete_launch_template", region, LaunchTemplateId=template)
    except CallError as error:
        if not (error.code.startswith("InvalidLaunchTemplate") and "NotFound" in error.code):
            raise


async def launch(account: Account, fleet: FleetRequest, count: int) -> list[Launched]:
    """Launch up to `count` machines.

    Raises:
        SkywardError: nothing was launched. After any other error, machines may have been.
    """
    version = await _create_version(account, fleet)
    failure: Exception | None = None
    for number, pause in enumerate(pauses()):
        # An instant fleet repeats its answer to a token: another attempt, after nothing was launched, is another token.
        answer = await send_launch(
            account, "ec2", "create_fleet", fleet.region, **_values(fleet, version, count, number)
        )
        launched = [
            Launched(machine, each["InstanceType"], _overrides(each).get("SubnetId", ""))
            for each in answer.get("Instances", ())
            for machine in each.get("InstanceIds", ())
        ]
        if launched:
            return launched
        errors = [
            CallError("CreateFleet", each.get("ErrorCode", "Unknown"), 0, each.get("ErrorMessage", ""))
            for each in answer.get("Errors", ())
        ]
        failure = refusal_of(errors, _where(fleet))
        if not isinstance(failure, CallError) or pause is None:
            break
        await wait(pause)
    if isinstance(failure, CallError):
        failure = explained(failure, _where(fleet))
    raise failure if failure is not None else ProvisioningError("AWS launched nothing.")


async def _create_version(account: Account, fleet: FleetRequest) -> int:
    for pause in pauses():
        try:
            answer = await account.call(
                "ec2",
                "create_launch_template_version",
                fleet.region,
                LaunchTemplateId=fleet.template,
                LaunchTemplateData=fleet.data,
                ClientToken=short_token(fleet.request),
            )
            return int(answer["LaunchTemplateVersion"]["VersionNumber"])
        except CallError as error:
            if pause is None or not is_transient(error.code):
                raise explained(error) from error
            await wait(pause)
    raise AssertionError("the last attempt returns or raises")


def _values(fleet: FleetRequest, version: int, count: int, number: int) -> dict[str, Any]:
    """Return the arguments of a request."""
    price = {"MaxPrice": f"{fleet.most:.6f}"} if fleet.market == "spot" and fleet.most is not None else {}
    spot = {"AllocationStrategy": fleet.strategy, "InstanceInterruptionBehavior": "terminate"}
    return {
        "Type": "instant",
        "ClientToken": short_token(f"{fleet.request}.{number}" if number else fleet.request),
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": count,
            "DefaultTargetCapacityType": fleet.market,
        },
        **(
            {"SpotOptions": spot}
            if fleet.market == "spot"
            else {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}}
        ),
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": fleet.template, "Version": str(version)},
                "Overrides": [{"InstanceType": kind, "SubnetId": subnet, **price} for kind, subnet in fleet.places],
            }
        ],
        "TagSpecifications": [{"ResourceType": "fleet", "Tags": tag_list(fleet.tags)}],
    }


def _overrides(each: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = each.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    return found


def _where(fleet: FleetRequest) -> str:
    return f"{fleet.places[0][0]} in {fleet.region} ({fleet.market})"


def user_data(text: str) -> str:
    """Return user data as a template takes it."""
    return base64.b64encode(text.encode()).decode()

"""Launches of tasks: RunTask, at most ten tasks a call, each call with a token of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from skyward.errors import ProvisioningError, SkywardError, SpecError
from skyward.providers import Market
from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.failures import CallError, explained, refusal_of
from skyward_providers.aws_account.launches import pauses, send_launch, short_token, wait
from skyward_providers.fargate.definitions import CONTAINER, ecs_tags

__all__ = ["STOP_NOTICE", "TaskLaunch", "launch_tasks", "refined"]

STOP_NOTICE: Final = "/run/skyward-stop-notice"
"""File of a spot task that gets the time at which AWS announced that it takes the task back."""

_AT_ONCE = 10
"""Tasks that one call launches."""

_IN_TEXT: Final[Mapping[str, str]] = {
    "reached the limit": "LimitExceeded",
    "above your limit": "LimitExceeded",
    "Capacity is unavailable": "InsufficientCapacity",
    "RESOURCE:": "InsufficientCapacity",
    "RequestLimitExceeded": "RequestLimitExceeded",
    "Rate exceeded": "RequestLimitExceeded",
    "Rate limit exceeded": "RequestLimitExceeded",
}
"""Parts of messages of ECS, whose codes stand for other errors too, and the codes that say what they mean."""


@dataclass(frozen=True, slots=True)
class TaskLaunch:
    """A launch.

    Attributes:
        region: where.
        cluster: name of the ECS cluster.
        definition: ARN of the task definition.
        what: the tasks, as errors name them.
        subnets: subnets to choose among.
        group: security group.
        public_address: True for tasks with a public address.
        market: the market to buy in.
        variables: environment variables of the container.
        tags: tags of the tasks.
        started_by: by whom, as ECS lists tasks.
        request: idempotency token.
    """

    region: str
    cluster: str
    definition: str
    what: str
    subnets: Sequence[str]
    group: str
    public_address: bool
    market: Market
    variables: Mapping[str, str]
    tags: Mapping[str, str]
    started_by: str
    request: str


def refined(error: CallError) -> CallError:
    """Return an error of ECS with the code that says what its message says."""
    for text, code in _IN_TEXT.items():
        if text in error.detail and error.code != code:
            return CallError(error.operation, code, 0, error.detail, error.door)
    return error


async def launch_tasks(account: Account, launch: TaskLaunch, count: int) -> list[Mapping[str, Any]]:
    """Launch up to `count` tasks; return them as ECS describes them.

    Raises:
        SkywardError: nothing was launched. After any other error, tasks may have been.
    """
    launched: list[Mapping[str, Any]] = []
    for first in range(0, count, _AT_ONCE):
        asked = min(_AT_ONCE, count - first)
        try:
            found = await _launch_some(account, launch, first, asked)
        except SkywardError:
            if launched:  # fewer than asked for
                return launched
            raise
        launched += found
        if len(found) < asked:
            break
    return launched


async def _launch_some(account: Account, launch: TaskLaunch, first: int, count: int) -> list[Mapping[str, Any]]:
    for number, pause in enumerate(pauses()):
        # ECS repeats its answer to a token: another attempt, after nothing was launched, is another token.
        token = short_token(f"{launch.request}.{first}.{number}")
        try:
            answer = await send_launch(
                account, "ecs", "run_task", launch.region, refine=refined, **_values(launch, count, token)
            )
        except ProvisioningError as error:
            raise _precise(error, launch) from error
        if answer.get("tasks"):
            return list(answer["tasks"])
        failures = [
            refined(CallError("RunTask", "Failure", 0, each.get("reason") or each.get("detail") or "", account.door))
            for each in answer.get("failures", ())
        ]
        failure = refusal_of(failures, launch.what)
        if not isinstance(failure, CallError):
            raise failure
        if pause is None:
            raise explained(failure, launch.what)
        await wait(pause)
    raise AssertionError("the last attempt returns or raises")


def _precise(error: ProvisioningError, launch: TaskLaunch) -> ProvisioningError | SpecError:
    if type(error) is ProvisioningError and launch.market == "spot" and "FARGATE_SPOT" in str(error):
        return SpecError(
            f"ECS cluster {launch.cluster!r} has no spot tasks: run `aws ecs put-cluster-capacity-providers` with "
            'FARGATE_SPOT, or set `allocation="on-demand"`.'
        )
    return error


def _values(launch: TaskLaunch, count: int, token: str) -> dict[str, Any]:
    """Return the arguments of a call."""
    market: dict[str, Any] = {"launchType": "FARGATE"}
    if launch.market == "spot":
        market = {"capacityProviderStrategy": [{"capacityProvider": "FARGATE_SPOT", "weight": 1}]}
    variables = [{"name": name, "value": value} for name, value in launch.variables.items()]
    return {
        "cluster": launch.cluster,
        "taskDefinition": launch.definition,
        "count": count,
        **market,
        "networkConfiguration": {
            "awsvpcConfiguration": {
                "subnets": list(launch.subnets),
                "securityGroups": [launch.group],
                "assignPublicIp": "ENABLED" if launch.public_address else "DISABLED",
            }
        },
        "overrides": {"containerOverrides": [{"name": CONTAINER, "environment": variables}]},
        "startedBy": launch.started_by,
        "tags": ecs_tags(launch.tags),
        "clientToken": token,
    }

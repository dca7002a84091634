"""Settings of `sky.Fargate`, its sizes, prices and names."""

import json

import pytest

import skyward as sky
from skyward.providers import Cluster, InstanceType, Offer
from skyward_providers.aws_account.failures import CallError, explained
from skyward_providers.fargate.definitions import definition_of, family_name, name_of_owner, pool_in
from skyward_providers.fargate.launching import refined
from skyward_providers.fargate.prices import spot_prices_in
from skyward_providers.fargate.sizes import sizes
from skyward_providers.fargate.tasks import task_of

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"region": "Ireland"}, "region must be a region of AWS"),
        ({"regions": ["us-east-1", "eu-west-1"], "cluster": "mine"}, "cluster belongs to one region"),
        ({"container_image": " "}, "container_image must not be empty"),
        ({"log_group": "logs"}, "set `execution_role_arn` too"),
        ({"caller_cidr": "me"}, "caller_cidr must be a range of addresses"),
        ({"request_timeout": 0}, "request_timeout must be a positive number"),
        ({"public_address": 1}, "public_address must be bool"),
    ],
)
def test_settings_are_checked(fields: dict[str, object], words: str) -> None:
    with pytest.raises(sky.SpecError, match=words):
        sky.Fargate(**fields)  # type: ignore[arg-type]  # that is the point


def test_sizes_are_pairs_that_fargate_has() -> None:
    found = {(each.vcpus, each.memory_gb) for each in sizes()}
    assert len(found) == 4 + 7 + 13 + 23 + 12 + 12
    assert {memory for vcpus, memory in found if vcpus == 8} == {*range(16, 61, 4)}
    assert next(sizes()).units == ("512", "1024")


def test_names_tell_owner_and_pool() -> None:
    family = family_name("me", "a-1_b-c", "us-east-1/x86_64/2/8")
    assert family.startswith(name_of_owner("me"))
    assert not family.startswith(name_of_owner("you"))
    assert pool_in(family) == "a-1_b-c"
    assert len(family_name("me", "p" * 51, "o")) <= 255


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"prices": [{}]}', '{"prices": 1}', '{"prices": [[]]}'])
def test_prices_in_another_form_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="form|JSON|Expecting"):
        spot_prices_in(text, "us-east-1")


def test_half_a_price_is_none() -> None:
    row = {"unit": "vCPU-Hours", "price": {"USD": "0.01"}, "attributes": {"aws:region": "us-east-1"}}
    assert spot_prices_in(json.dumps({"prices": [row]}), "us-east-1") == {}


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        ("ThrottlingException", "You've reached the limit on the number of tasks you can run", sky.QuotaError),
        ("ClientException", "Capacity is unavailable at this time.", sky.NoCapacityError),
        ("InvalidParameterException", "Rate exceeded", sky.RateLimitError),
        ("AccessDeniedException", "Capacity of your mind", sky.CredentialsError),
    ],
)
def test_messages_say_more_than_codes(code: str, text: str, expected: type[Exception]) -> None:
    assert type(explained(refined(CallError("RunTask", code, 400, text, "sky.Fargate")))) is expected


def cluster(**specific: object) -> Cluster:
    offer = Offer("o", InstanceType("2 vCPU, 8 GB", 2, 8), spot_price=0.03, on_demand_price=0.1, region="us-east-1")
    return Cluster("c", "p", sky.Spec(), offer, {"public_address": True, **specific})


def test_start_command_fits_into_a_definition_and_has_no_key() -> None:
    (container,) = definition_of(sky.Fargate(container_image="me:{python}"), cluster())["containerDefinitions"]
    assert container["image"] == f"me:{sky.Spec().image.resolved_python}"
    assert len(container["command"][0]) < 8192
    assert "PRIVATE" not in container["command"][0]


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        ({"lastStatus": "PENDING"}, ("provisioning", "the task is pending")),
        ({"lastStatus": "RUNNING"}, ("provisioning", "it has no public address yet: its subnet may give none")),
        (
            {
                "lastStatus": "STOPPED",
                "stopCode": "SpotInterruption",
                "stoppedReason": "Interrupted.",
            },
            ("exited", "AWS took the spot task back"),
        ),
        (
            {
                "lastStatus": "DEPROVISIONING",
                "desiredStatus": "STOPPED",
                "stopCode": "EssentialContainerExited",
                "stoppedReason": "Essential container in task exited",
                "containers": [{"reason": "OutOfMemoryError: Container killed due to memory usage"}],
            },
            ("exited", "its container ended: OutOfMemoryError: Container killed due to memory usage"),
        ),
        (
            {
                "lastStatus": "STOPPED",
                "stopCode": "TaskFailedToStart",
                "stoppedReason": "PullError: x.",
            },
            ("exited", "AWS could not start it: PullError: x"),
        ),
        ({"lastStatus": "STOPPED", "stoppedReason": "Host gone"}, ("exited", "AWS stopped it: Host gone")),
    ],
)
def test_state_of_a_task_has_its_reason(described: dict[str, object], expected: tuple[str, str]) -> None:
    instance = task_of(cluster(), {"taskArn": "arn:aws:ecs:us-east-1:1:task/c/0123", **described})
    assert instance is not None
    assert (instance.id, instance.status, instance.detail) == ("0123", *expected)


def test_task_that_was_stopped_by_a_call_is_gone() -> None:
    assert task_of(cluster(), {"taskArn": "a/b", "lastStatus": "STOPPED", "stopCode": "UserInitiated"}) is None

"""`sky.Kubernetes`: settings, manifests, offers of nodes, and states of pods, without a cluster."""

import json
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.providers import Cluster, InstanceType, Offer
from skyward.providers.protocol import not_acted_on
from skyward_providers.kubernetes.kubectl import Kubectl
from skyward_providers.kubernetes.manifests import label, owner_name, pod_manifest
from skyward_providers.kubernetes.nodes import node_offers
from skyward_providers.kubernetes.states import trouble_of

OWNER = {"metadata": {"name": "skyward-one-1", "uid": "uid-1"}}
ANY = Offer("any", InstanceType("any node", 0, 0, ""), open_ended=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"image": ""}, "image must not be empty, nor begin with '-', but got ''."),
        ({"namespace": "-n"}, "namespace must not be empty, nor begin with '-', but got '-n'."),
        ({"pod_prefix": "A"}, "pod_prefix must be up to 20 lowercase letters"),
        ({"node_selector": {"pool": 1}}, "node_selector must set labels to texts, but it has {'pool': 1}."),
        ({"tolerations": ["gpu"]}, "tolerations must be Mapping"),
        ({"pod_template": "x"}, "pod_template must be Mapping"),
        ({"pod_template": {"x": object()}}, "pod_template must have only dicts, lists, texts and numbers"),
        ({"time": 1}, "time must be at least 60"),
        ({"hourly_price": -1}, "hourly_price must be"),
    ],
)
def test_invalid_settings_of_pods_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(sky.SpecError) as caught:
        sky.Kubernetes(**given)
    assert message in str(caught.value)


def test_settings_of_pods_are_values() -> None:
    template = {"containers": [{"env": [{"name": "A", "value": "1"}]}]}
    one, two = (sky.Kubernetes(pod_template=template, tolerations=[{"key": "gpu"}]) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)


def test_ignored_fields_of_pods_are_named() -> None:
    spec = sky.Spec(vcpus=1, memory_gb=1, disk_gb=1, region="eu", image=sky.Image(pip=["numpy"]))
    assert not_acted_on(spec, sky.Kubernetes().acts_on) == ("region",)
    assert not_acted_on(spec, sky.Kubernetes(python="/usr/bin/python3").acts_on) == ("image.pip", "region")


def test_credentials_of_a_cluster_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert sky.Kubernetes().credentials().found == ""
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube/config").touch()
    assert sky.Kubernetes().credentials().found == str(tmp_path / ".kube/config")
    assert sky.Kubernetes(kubeconfig=str(tmp_path / "none")).credentials().found == ""
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none:{tmp_path}/.kube/config")
    assert sky.Kubernetes().credentials().found == "environment variable KUBECONFIG"


def test_several_kubeconfigs_are_given_to_every_command() -> None:
    kubectl = Kubectl("/bin/kubectl", "/a:/b", "dev", "team")
    assert kubectl.words == ("env", "KUBECONFIG=/a:/b", "/bin/kubectl", "--context", "dev", "--namespace", "team")


def test_names_and_labels_fit_their_limits() -> None:
    long = "P" * 30 + "_.-" + "x" * 18
    name = owner_name(sky.Kubernetes(pod_prefix="a" * 20), long)
    assert len(name) <= 45
    assert name == name.lower()
    assert label("train-1") == "train-1"
    for value in ("-train-", "x" * 80, "ä", ""):
        made = label(value)
        assert 0 < len(made) <= 63
        assert made.isascii()
        assert made[0].isalnum()
        assert made[-1].isalnum()
        assert label(made) == made


def manifest(settings: sky.Kubernetes, offer: Offer = ANY, **spec: Any) -> dict[str, Any]:
    tags = {"skyward-pool": "one-1", "skyward-owner": "me", "skyward-request": "r1"}
    specific = {"image": "python:3.13-slim", "owner": "me"}
    cluster = Cluster("c", "one-1", sky.Spec(provider=settings, **spec), offer, specific, (), tags)
    made = pod_manifest(settings, cluster, 0, OWNER)
    json.dumps(made)
    return made


def test_template_is_merged_into_the_pod() -> None:
    template = {
        "priorityClassName": "batch",
        "volumes": [{"name": "data"}],
        "containers": [{"volumeMounts": [{"name": "data", "mountPath": "/data"}]}, {"name": "sidecar"}],
    }
    spec = manifest(sky.Kubernetes(pod_template=template))["spec"]
    assert spec["priorityClassName"] == "batch"
    assert [each["name"] for each in spec["volumes"]] == ["shm", "data"]
    assert [each["name"] for each in spec["containers"]] == ["node", "sidecar"]
    assert [each["name"] for each in spec["containers"][0]["volumeMounts"]] == ["shm", "data"]
    assert spec["containers"][0]["image"] == "python:3.13-slim"


def test_pod_selects_nodes_of_the_model_only_if_gpus_are_requested() -> None:
    offer = Offer(
        "a", InstanceType("a", 8, 64, "NVIDIA-L4", 1), specific={"selector": {"nvidia.com/gpu.product": "L4"}}
    )
    settings = sky.Kubernetes(node_selector={"pool": "ml"})
    assert manifest(settings, offer)["spec"]["nodeSelector"] == {"pool": "ml"}
    pod = manifest(settings, offer, accelerator="L4")["spec"]
    assert pod["nodeSelector"] == {"pool": "ml", "nvidia.com/gpu.product": "L4"}
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def node(name: str, *, labels: dict[str, str] | None = None, taints: Any = (), **amounts: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": list(taints)},
        "status": {
            "allocatable": {"cpu": "7910m", "memory": "32900Mi"} | {k.replace("_", "/"): v for k, v in amounts.items()},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def test_nodes_of_a_kind_are_one_offer() -> None:
    gpus = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-SHARED", "nvidia.com/gpu.memory": "81920"}
    nodes = [node("a"), node("b"), node("c", labels=gpus, **{"nvidia.com_gpu": "8"})]
    plain, big = node_offers(sky.Kubernetes(hourly_price=2), nodes)
    assert (plain.instance_type.vcpus, plain.instance_type.memory_gb) == (7.91, 32.1)
    assert plain.instance_type.accelerator is None
    kind = big.instance_type
    assert (kind.accelerator, kind.accelerator_count) == ("NVIDIA-A100-SXM4-80GB", 8)
    assert kind.accelerator_memory_gb == 80
    assert big.specific == {"selector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-SHARED"}}
    assert big.hourly_price("on-demand") == 2


def test_tainted_nodes_are_offered_if_they_are_tolerated() -> None:
    taint = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
    of_gpus = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    nodes = [node("a", taints=[taint, of_gpus])]
    assert list(node_offers(sky.Kubernetes(), nodes)) == []
    for toleration in ({"key": "dedicated", "value": "ml"}, {"operator": "Exists"}):
        assert len(list(node_offers(sky.Kubernetes(tolerations=[toleration]), nodes))) == 1
    assert list(node_offers(sky.Kubernetes(tolerations=[{"key": "dedicated", "value": "web"}]), nodes)) == []


def test_latest_trouble_of_a_pod_is_named() -> None:
    events = [
        {"reason": "FailedMount", "message": "no such\nvolume.", "lastTimestamp": "2026-11-23T08:00:01Z"},
        {"reason": "FailedCreatePodSandBox", "message": "no network", "lastTimestamp": "2026-11-23T08:00:00Z"},
        {"reason": "FailedScheduling", "message": "no node", "eventTime": "2026-11-23T08:00:02Z"},
    ]
    assert trouble_of(events) == "FailedMount: no such volume"
    assert trouble_of([]) == ""

"""An API server of Kubernetes without a cluster, which `kubectl` works with: objects are data, and nothing runs.

Objects that are created are checked against the published schemas of two versions (PyPI `kubernetes-validate`,
which `make vendors` installs). A pod runs as soon as it is asked for, unless `statuses` says otherwise. Commands cannot
be run in pods.
"""

import datetime
import itertools
import json
import ssl
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tests.fakes.server import Answer, FakeServer, Request

__all__ = ["TOKEN", "FakeKubernetes", "kubeconfig", "refusal", "schemas"]

TOKEN = "fake-token"  # of the fake
_HOME = Path(__file__).parents[2] / ".cache" / "vendors" / "kubernetes"
_VALID_FOR = datetime.timedelta(days=1)
_VERBS = ["create", "delete", "get", "list", "watch"]
_KINDS = {"pods": "Pod", "configmaps": "ConfigMap", "nodes": "Node", "events": "Event"}
_REVIEWS = "/apis/authorization.k8s.io/v1"

RUNNING: Mapping[str, Any] = {
    "phase": "Running",
    "podIP": "10.0.0.9",
    "containerStatuses": [{"name": "node", "state": {"running": {}}}],
}
_NODE = {
    "metadata": {"name": "node1", "labels": {"kubernetes.io/arch": "amd64"}},
    "status": {
        "allocatable": {"cpu": "7910m", "memory": "32Gi"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


@cache
def _certificate() -> ssl.SSLContext:
    """Return a context with a new certificate of its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fake")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + _VALID_FOR)
    signed = made.sign(key, hashes.SHA256())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        file.write(private + signed.public_bytes(Encoding.PEM))
        file.flush()
        context.load_cert_chain(file.name)
    return context


def schemas() -> Sequence[Path]:
    """Return the folders of the strict schemas of the oldest and the newest version; empty without them."""
    found = sorted(_HOME.glob("lib/python*/site-packages/kubernetes_validate/kubernetes-json-schema/*-local-strict"))
    return found and [found[0], found[-1]]


@cache
def _validator(folder: Path, kind: str) -> Draft202012Validator:
    contents = (json.loads((folder / name).read_text()) for name in ("_definitions.json", f"{kind.lower()}-v1.json"))
    definitions, schema = (Resource.from_contents(each) for each in contents)
    registry: Registry[Any] = Registry()
    return Draft202012Validator(schema.contents, registry=definitions @ (schema @ registry))


def refusal(code: int, reason: str, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an error in the form of the API."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return Answer(code, {**status, "message": message, "reason": reason, "code": code}, headers or {})


def kubeconfig(server: "FakeKubernetes", folder: Path, *, token: str = TOKEN, namespace: str = "team") -> str:
    """Write a kubeconfig for the server, and return its path."""
    path = folder / "kubeconfig"
    context = {"cluster": "fake", "user": "me", "namespace": namespace}
    config = {
        "kind": "Config",
        "apiVersion": "v1",
        "clusters": [{"name": "fake", "cluster": {"server": server.url, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [{"name": "fake", "context": context}],
        "current-context": "fake",
    }
    path.write_text(json.dumps(config))
    return str(path)


class FakeKubernetes(FakeServer):
    """The server.

    Attributes:
        objects: by resource, namespace and name.
        status: returns the status of a pod when it is asked for.
        denied: resources that the user may not list, and permissions that a review denies.
        wrong: requests that break a schema, one text each.
    """

    def __init__(self) -> None:
        super().__init__()
        socket = self._server.socket  # kubectl sends no token without TLS
        self._server.socket = _certificate().wrap_socket(socket, server_side=True, do_handshake_on_connect=False)
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.status: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda pod: RUNNING
        self.denied: set[str] = set()
        self.wrong: list[str] = []
        self._numbers = itertools.count(1)
        self.add("nodes", _NODE)

    @property
    def url(self) -> str:
        return super().url.replace("http:", "https:")

    def add(self, resource: str, thing: Mapping[str, Any], namespace: str = "") -> dict[str, Any]:
        """Add an object."""
        number = f"{next(self._numbers)}"
        given = {"uid": f"uid-{number}", "resourceVersion": number, "creationTimestamp": "2026-11-23T08:00:00Z"}
        metadata = {**thing["metadata"], **given} | ({"namespace": namespace} if namespace else {})
        added = {**thing, "kind": _KINDS[resource], "apiVersion": "v1", "metadata": metadata}
        self.objects[resource, namespace, metadata["name"]] = added
        return added

    def names(self, resource: str) -> list[str]:
        """Return the names of the objects of a resource."""
        self._collect()
        return sorted(name for kind, _, name in self.objects if kind == resource)

    def handle(self, request: Request) -> Answer:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return refusal(401, "Unauthorized", "Unauthorized")
        self._collect()
        if (found := _discovery(request.path)) is not None:
            return Answer(body=found)
        if request.path == f"{_REVIEWS}/selfsubjectaccessreviews":
            return self._review(request.body)
        match request.path.strip("/").split("/"):
            case ["api", "v1", "nodes"]:
                return self._list(request, "nodes", "")
            case ["api", "v1", "namespaces", namespace, resource] if resource in _KINDS:
                make = self._create if request.method == "POST" else self._list
                return make(request, resource, namespace)
            case ["api", "v1", "namespaces", namespace, resource, name] if resource in _KINDS:
                return self._one(request, (resource, namespace, name))
        return refusal(404, "NotFound", "the server could not find the requested resource")

    def _review(self, review: dict[str, Any]) -> Answer:
        asked = review["spec"]["resourceAttributes"]
        what = "/".join(filter(None, (asked["verb"], asked["resource"], asked.get("subresource"))))
        return Answer(201, {**review, "status": {"allowed": what not in self.denied}})

    def _create(self, request: Request, resource: str, namespace: str) -> Answer:
        thing, kind = request.body, _KINDS[resource]
        for folder in schemas():
            self.wrong += [f"{folder.name}: {each.message}" for each in _validator(folder, kind).iter_errors(thing)]
        if namespace == "nowhere":
            return refusal(404, "NotFound", 'namespaces "nowhere" not found')
        name = thing["metadata"]["name"]
        if (resource, namespace, name) in self.objects:
            return refusal(409, "AlreadyExists", f'{resource} "{name}" already exists')
        return Answer(201, self.add(resource, {**thing, "status": {"phase": "Pending"}}, namespace))

    def _list(self, request: Request, resource: str, namespace: str) -> Answer:
        if resource in self.denied:
            what = f'User "me" cannot list resource "{resource}" in API group "" in the namespace "{namespace}"'
            return refusal(403, "Forbidden", f"{resource} is forbidden: {what}")
        found = [each for key, each in self.objects.items() if key[:2] == (resource, namespace)]
        found = [self._current(each) for each in found if _selected(each, request.query)]
        if request.query.get("watch"):  # an object that is being deleted is gone by then
            return Answer(body="")
        return Answer(body={"kind": f"{_KINDS[resource]}List", "apiVersion": "v1", "metadata": {}, "items": found})

    def _one(self, request: Request, key: tuple[str, str, str]) -> Answer:
        thing = self.objects.get(key)
        if thing is None:
            return refusal(404, "NotFound", f'{key[0]} "{key[2]}" not found')
        if request.method == "DELETE":
            del self.objects[key]
        return Answer(body=self._current(thing))

    def _collect(self) -> None:
        """Delete the objects whose owner is gone, even if it was gone before they were created."""
        uids = {thing["metadata"]["uid"] for thing in self.objects.values()}
        for key, thing in list(self.objects.items()):
            if any(owner["uid"] not in uids for owner in thing["metadata"].get("ownerReferences", ())):
                del self.objects[key]

    def _current(self, thing: dict[str, Any]) -> dict[str, Any]:
        return {**thing, "status": self.status(thing)} if thing["kind"] == "Pod" else thing


def _selected(thing: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    """Return whether an object has the labels and the fields of a query."""
    metadata = thing["metadata"]
    labels = metadata.get("labels", {})
    fields = {"metadata.name": metadata["name"], "involvedObject.uid": "", "type": ""}
    wanted: list[tuple[Mapping[str, str], str]] = [
        (values, pair)
        for values, parameter in ((labels, "labelSelector"), (fields, "fieldSelector"))
        for pair in filter(None, query.get(parameter, "").split(","))
    ]
    pairs = [(values, pair.replace("==", "=").split("=", 1)) for values, pair in wanted]
    return all(values.get(name) == value for values, (name, value) in pairs)


def _discovery(path: str) -> Mapping[str, Any] | None:
    """Return the description of the API at a path, from which kubectl learns what there is."""
    group = {
        "name": "authorization.k8s.io",
        "versions": [{"groupVersion": "authorization.k8s.io/v1", "version": "v1"}],
        "preferredVersion": {"groupVersion": "authorization.k8s.io/v1", "version": "v1"},
    }
    resources = [
        {"name": name, "singularName": "", "namespaced": name != "nodes", "kind": kind, "verbs": _VERBS}
        for name, kind in _KINDS.items()
    ]
    review = {"singularName": "", "namespaced": False, "kind": "SelfSubjectAccessReview", "verbs": ["create"]}
    reviews = [{"name": "selfsubjectaccessreviews", **review}]
    described: Mapping[str, Mapping[str, Any]] = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": resources},
        _REVIEWS: {"kind": "APIResourceList", "groupVersion": "authorization.k8s.io/v1", "resources": reviews},
        "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"},
    }
    return described.get(path)

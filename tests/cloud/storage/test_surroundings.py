"""Stores in the surroundings of a process: certificates, roles, permissions, and other transfers."""

import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

import skyward as sky
from skyward.storage.download import download
from skyward.storage.listing import check
from skyward.storage.location import BucketLocation
from skyward.storage.part_file import RANGE
from skyward.storage.trees import download_many
from tests.fakes.storage import FakeStore

EMPTY = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
ROLE = {"AccessKeyId": "ROLE", "SecretAccessKey": "x", "Token": "tok", "Expiration": "2099-01-01T00:00:00Z"}


class Empty(BaseHTTPRequestHandler):
    """An empty store, which is also the agent that gives a container the credentials of its role."""

    protocol_version = "HTTP/1.1"
    signed: list[str]

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        body = json.dumps(ROLE).encode() if self.path == "/role" else EMPTY
        self.signed.append(f"{self.headers['authorization']} {self.headers['x-amz-security-token']}")
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.send_response(404)
        self.send_header("content-length", "0")
        self.end_headers()


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """The empty store; it serves once its thread is started."""
    found = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Empty,), {"signed": []}))
    found.daemon_threads = True
    found.block_on_close = False
    thread = threading.Thread(target=found.serve_forever, args=(0.05,))
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


def certificate(name: str, by: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None) -> tuple[
    x509.Certificate, ec.EllipticCurvePrivateKey
]:  # fmt: skip
    """Return a certificate for this machine, or of an authority."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if by is None else by[0].subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(by is None, None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    )
    return builder.sign(key if by is None else by[1], hashes.SHA256()), key


@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_authority_of_a_store_is_taken_from_the_environment(
    server: ThreadingHTTPServer, store: FakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    other, authority = certificate("other", None), certificate("authority", None)
    own, key = certificate("store", authority)
    (tmp_path / "own.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + own.public_bytes(Encoding.PEM)
    )
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(other[0].public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "own.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    location = store.location("bucket", endpoint=f"https://127.0.0.1:{server.server_port}")
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    monkeypatch.setenv(variable, str(bundle))
    with pytest.raises(
        sky.StorageError, match=r"^https://\S+ could not prove who it is: check the endpoint, or name a"
    ):
        check(location, within=1)
    with bundle.open("ab") as file:
        file.write(authority[0].public_bytes(Encoding.PEM))
    assert check(location) == location


def test_role_of_a_machine_is_used_if_there_are_no_keys(
    server: ThreadingHTTPServer, store: FakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://127.0.0.1:{server.server_port}"
    location = BucketLocation("bucket", "", url, "us-east-1", True)
    with pytest.raises(
        sky.CredentialsError, match="^No credentials for the object store were found, and this machine h"
    ):
        check(location, within=5)
    (tmp_path / "token").write_text("token of the pod")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/role")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    assert check(location) == location
    asked, listed, *_ = server.RequestHandlerClass.signed  # type: ignore[attr-defined]
    assert asked == "token of the pod None"
    assert "Credential=ROLE/" in listed
    assert listed.endswith(" tok")


def test_missing_permissions_on_files_are_told(store: FakeStore, bucket: str, tmp_path: Path) -> None:
    store.put(bucket, k=b"x")
    if os.geteuid():
        pytest.skip("needs a process that may become another user")
    program = f"""
import os
from pathlib import Path
from skyward.errors import StorageError
from skyward.storage.download import download
from skyward.storage.location import BucketLocation
from skyward.storage.upload import upload
location = BucketLocation({bucket!r}, "", {store.url!r}, "us-east-1", True, "k", "s")
upload(location, Path("/etc/hostname"), "other")  # loads everything
os.setuid(65534)
for act in (lambda: upload(location, Path("/etc/shadow"), "k"), lambda: download(location, "k", Path("/etc/k"))):
    try:
        act()
    except StorageError as error:
        print(error, flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "/etc/shadow cannot be read (permission denied).",
        f"s3://{bucket}/k cannot be written to /etc/k (permission denied): choose a folder in which you may write.",
    ]


def test_downloads_of_one_file_at_once_do_not_mix(store: FakeStore, bucket: str, tmp_path: Path) -> None:
    content = os.urandom(3 * RANGE)
    store.put(bucket, k=content)
    location = store.location(bucket)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: download(location, "k", tmp_path / "file"), range(3)))
    assert (tmp_path / "file").read_bytes() == content


def test_download_of_no_objects_makes_nothing(store: FakeStore, bucket: str, tmp_path: Path) -> None:
    download_many(store.location(bucket), [], tmp_path / "none")

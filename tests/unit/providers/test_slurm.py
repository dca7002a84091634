"""`sky.Slurm`: validation, the answers of Slurm's commands, and the commands that it runs, which are scripts here."""

import asyncio
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import skyward as sky
from skyward.providers import Cluster, InstanceType, Offer
from skyward.specs import Spec
from skyward.worker.machine import hardware
from skyward_providers.slurm.anchor import DESCRIBE, batch_script
from skyward_providers.slurm.commands import LoginNodeError, SlurmError, UnansweredError, refusal
from skyward_providers.slurm.hardware import offers_of, read_partitions
from skyward_providers.slurm.jobs import read_jobs
from skyward_providers.slurm.provider import SlurmProvider
from skyward_providers.slurm.settings import limit_text, minutes_of, time_limit
from tests.identity import identity
from tests.waiting import wait_for

pytestmark = pytest.mark.unit

OFFER = Offer("main", InstanceType("here", 4, 16, "a100", 2), specific={"gpu": "a100"}, region="main", divisible=True)
COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"partition": ""}, "partition must be a value such as 'gpu', but got ''."),
        ({"partition": "-x"}, "partition must be a value such as 'gpu', but got '-x'."),
        ({"host": "-oProxyCommand=x"}, "host must be a value such as 'me@login'"),
        ({"gres": "gpu; rm"}, "gres must be a value such as 'gpu:a100:2'"),
        ({"options": "--qos=high"}, "options must be a list"),
        ({"options": ["qos"]}, "options must each begin with '-', as in ['--qos=high'], but got 'qos'."),
        ({"scratch": "tmp"}, "scratch must be an absolute path"),
        ({"scratch": "/a b"}, "scratch must be an absolute path"),
        ({"time": 0}, "time must be"),
        ({"time": "soon"}, "time must be seconds, or a limit such as '04:00:00' or '1-12:00:00', but got 'soon'."),
        ({"time": "0"}, "time must be a positive time limit, but got '0'."),
        ({"directory": ""}, "directory must not be empty."),
        ({"grace": 0}, "grace must be"),
        ({"hourly_price": -1}, "hourly_price must be"),
    ],
)
def test_invalid_settings_of_slurm_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(sky.SpecError) as caught:
        sky.Slurm(**given)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--test-only", "options must not have --test-only ('--test-only'), because it changes what `sbatch` does"),
        ("--comment=x", "options must not have --comment ('--comment=x'), because Skyward finds the jobs of a pool by"),
        ("-Jmine", "options must not have --job-name ('-Jmine'), because Skyward finds the jobs of a pool by it; use"),
        ("--array=1-4", "because a node is one job with one task; use `nodes=` of the pool."),
        ("-N2", "must not have --nodes"),
        ("-QH", "must not have --hold"),
        ("--mem=4G", "use `memory_gb=` of the pool."),
        ("--outp=x", "must not have --output"),
        *((f"--{name}", f"must not have --{name}") for name in (
            "wrap", "parsable", "error", "chdir", "export", "ntasks", "requeue", "wait"
        )),
        *((f"-{letter}1", "options must not have --") for letter in "aNnoeDW"),
    ],
)  # fmt: skip
def test_options_that_break_a_pool_are_refused(option: str, message: str) -> None:
    with pytest.raises(sky.SpecError) as caught:
        sky.Slurm(options=[option])
    assert message in str(caught.value)


def test_other_options_are_passed_on() -> None:
    given = [
        *(
            "--qos=high",
            "-qhigh",
            "--constraint=ib",
            "-Cib",
            "--exclusive",
            "--mem-per-cpu=2G",
            "--nodelist=n1",
            "-wn1",
        ),
        *("--mail-type=END", "--reservation=course", "--exclude=n2", "-xnode", "--nice=100", "-v"),
    ]
    assert sky.Slurm(options=given).options == tuple(given)


def test_notice_of_a_given_interpreter_names_it() -> None:
    assert sky.Slurm(python="/env/bin/python").acts_on.otherwise == (
        "Slurm places jobs, which use /env/bin/python as it is"
    )
    assert sky.Slurm().acts_on.otherwise == "Slurm places jobs, on the disks of the cluster"


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("30", 30),
        ("30:10", 31),
        ("04:00:00", 240),
        ("04:00:01", 241),
        ("1-12", 2160),
        ("1-0:30", 1470),
        ("2-00:00:00", 2880),
    ],
)
def test_time_limits_are_read_as_slurm_writes_them(text: str, minutes: int) -> None:
    assert minutes_of(text) == minutes
    assert time_limit(sky.Slurm(time=text)) == minutes


def test_time_limits_are_shown_in_their_largest_units() -> None:
    assert [limit_text(minutes) for minutes in (1, 90, 43_200, 2160)] == [
        "1 minute",
        "1 hour 30 minutes",
        "30 days",
        "1 day 12 hours",
    ]


def test_time_limits_in_seconds_are_rounded_up_to_minutes() -> None:
    assert [time_limit(sky.Slurm(time=seconds)) for seconds in (1, 60, 61)] == [1, 1, 2]
    assert time_limit(sky.Slurm()) is None


LISTED = """\
12|RUNNING|None|n1|0:10|skyward-two-1|skyward-owner=o skyward-pool=two-1 skyward-request=r/0
13|PENDING|Resources|n/a|0:00|skyward-two-1|site | text
14|PENDING|QOSMaxCpuPerUserLimit|n/a|0:00|skyward-two-1|(null)
15|PENDING|PartitionTimeLimit|n/a|0:00|skyward-two-1|(null)
16|PENDING|ReqNodeNotAvail, UnavailableNodes:n[1-4]|n/a|0:00|skyward-two-1|(null)
17|TIMEOUT|TimeLimit|n2|60:00|skyward-two-1|(null)
18|OUT_OF_MEMORY|OutOfMemory|n2|1:00|skyward-two-1|(null)
19|CONFIGURING|None|n3|0:01|skyward-two-1|(null)
22|COMPLETING|TimeLimit|n3|UNLIMITED|skyward-two-1|(null)
20|RUNNING|None|n3|0:01|simulation|skyward-pool=two-1
21_[1-3]|PENDING|None|n/a|0:00|other|(null)
"""


def test_jobs_are_read_with_their_stages_and_reasons() -> None:
    jobs = read_jobs(LISTED)
    assert list(jobs) == [*(str(id) for id in range(12, 20)), "22"]
    assert {job.pool for job in jobs.values()} == {"two-1"}, "a cluster may replace the comment"
    assert jobs["12"].tags == {"skyward-owner": "o", "skyward-pool": "two-1", "skyward-request": "r/0"}
    assert {id for id, job in jobs.items() if not job.exists} == {"17", "18", "22"}, (
        "one that can never start may yet do so"
    )
    assert {id: (job.stage, job.detail) for id, job in jobs.items()} == {
        "12": ("running", ""),
        "13": ("waiting", "its job 13 waits for free nodes (Resources)"),
        "14": (
            "waiting",
            "its job 14 waits, because a limit of your account or QOS is reached (QOSMaxCpuPerUserLimit)",
        ),
        "15": (
            "ended",
            "its job 15 can never start (PartitionTimeLimit): check partition, account and time of sky.Slurm",
        ),
        "16": ("waiting", "its job 16 waits for nodes that are down, drained or reserved (ReqNodeNotAvail)"),
        "17": ("ended", "its job reached its time limit of 1 hour: raise `time=` of sky.Slurm"),
        "18": ("ended", "its job ran out of memory: ask for more with `memory_gb`"),
        "19": ("waiting", "its node is being booted"),
        "22": ("ended", "its job reached its time limit: raise `time=` of sky.Slurm"),
    }


NODES = """\
NodeName=a1 Arch=x86_64 CPUTot=64 OS=Linux 6.1 #1 SMP RealMemory=515072 Gres=gpu:a100:4(S:0-1),nvme:2 Partitions=gpu,all
NodeName=a2 Arch=x86_64 CPUTot=64 OS=Linux 6.1 #1 SMP RealMemory=515072 Gres=gpu:a100:4(S:0-1),nvme:2 Partitions=gpu,all
NodeName=b1 Arch=aarch64 CPUTot=72 RealMemory=491520 Gres=gpu:gh200:1 Partitions=gpu
NodeName=c1 CPUTot=128 RealMemory=257024 Gres=(null) Partitions=cpu,all
NodeName=d1 CPUTot=8 RealMemory=32768 Gres=gpu:2 Partitions=all
NodeName=e1 CPUTot=8 RealMemory=32768 Gres=gpu:t4:1,gpu:v100:2 Partitions=all
NodeName=f1 CPUTot=1 RealMemory=2048 Partitions=all
"""

PARTITIONS = """\
PartitionName=gpu AllowGroups=ALL Default=NO MaxTime=2-00:00:00 State=UP TotalNodes=3
PartitionName=all AllowGroups=ALL Default=YES MaxTime=UNLIMITED State=DOWN TotalNodes=5
"""


def test_offers_are_read_from_the_nodes_of_the_partitions() -> None:
    partitions = {each.name: each for each in read_partitions(PARTITIONS)}
    assert [(each.is_default, each.is_up, each.limit) for each in partitions.values()] == [
        (False, True, "2-00:00:00"),
        (True, False, ""),
    ]
    offers = list(offers_of(NODES, partitions, 0.0))
    assert [each.id for each in offers] == [
        "gpu: 64 CPUs, 503 GiB, 4 a100, x86_64",
        "all: 64 CPUs, 503 GiB, 4 a100, x86_64",
        "gpu: 72 CPUs, 480 GiB, 1 gh200, arm64",
        "all: 128 CPUs, 251 GiB, x86_64",
        "all: 8 CPUs, 32 GiB, 2 gpu, x86_64",
        "all: 8 CPUs, 32 GiB, 1 t4, x86_64",
        "all: 8 CPUs, 32 GiB, 2 v100, x86_64",
        "all: 1 CPU, 2 GiB, x86_64",
    ]
    assert [each.instance_type.accelerator for each in offers] == [
        "a100",
        "a100",
        "gh200",
        None,
        "",
        "t4",
        "v100",
        None,
    ]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("Requested node configuration is not available", sky.SpecError),
        ("Invalid account or account/partition combination specified", sky.SpecError),
        ("Invalid qos specification", sky.SpecError),
        ("SlurmJob violates accounting/QOS policy (job submit limit, user's size and/or time limits)", sky.QuotaError),
        ("AssocMaxSubmitJobLimit", sky.QuotaError),
        ("User's group not permitted to use this partition", sky.CredentialsError),
        ("Slurm temporarily unable to accept job, sleeping and retrying", sky.RateLimitError),
        ("Unable to contact slurm controller (connect failure)", SlurmError),
    ],
)
def test_refusals_of_sbatch_are_told_apart(reason: str, kind: type[Exception]) -> None:
    error = refusal(SlurmError(reason))
    assert type(error) is kind
    assert reason in str(error)


def test_missing_commands_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(sky.ProviderMissingError) as caught:
        sky.Slurm().create_provider()
    assert str(caught.value) == (
        "sky.Slurm needs `sbatch`, `srun`, `squeue`, `scancel`, `scontrol` on PATH: run this on a login node, or name "
        "one with `sky.Slurm(host=...)`."
    )


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the commands of Slurm, which do nothing."""
    for name in COMMANDS:
        script(tmp_path, name, "")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def script(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def cluster(**fields: object) -> Cluster:
    spec = Spec(**fields)  # type: ignore[arg-type]
    return Cluster("c", "two-1", spec, OFFER, tags={**identity("two-1").tags, "skyward-request": "r"})


def test_request_whose_answer_was_lost_is_found_by_its_tags(commands: Path) -> None:
    line = "77|PENDING|None|n/a|0:00|skyward-two-1|skyward-pool=two-1 skyward-request=r/0"
    script(commands, "sbatch", f"echo '{line}' >{commands}/queue; echo 'sbatch: error: Socket timed out' >&2; exit 1")
    script(commands, "squeue", f"cat {commands}/queue 2>/dev/null || true")
    _, (instance,) = asyncio.run(sky.Slurm().create_provider().provision(cluster(), 1))
    assert (instance.id, instance.status) == ("77", "provisioning")


def test_outcome_of_a_request_that_is_not_found_is_unknown(commands: Path) -> None:
    script(
        commands, "sbatch", "echo 'sbatch: error: Batch job submission failed: Zero Bytes were transmitted' >&2; exit 1"
    )
    with pytest.raises(UnansweredError):
        asyncio.run(sky.Slurm().create_provider().provision(cluster(), 1))


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("client_loop: send disconnect: Broken pipe", UnansweredError),
        ("Connection to login closed by remote host.", UnansweredError),
        ("Read from remote host login: Connection reset by peer", UnansweredError),
        ("Timeout, server login not responding.", UnansweredError),
        ("ssh: connect to host login port 22: Connection timed out", LoginNodeError),
        ("me@login: Permission denied (publickey).", LoginNodeError),
    ],
)
def test_submission_over_a_lost_connection_has_an_unknown_outcome(
    commands: Path, said: str, kind: type[Exception]
) -> None:
    lost = f"echo '{said}' >&2; exit 255"
    script(commands, "ssh", f'case "$*" in *sbatch*) {lost} ;; *-G*) echo controlpath /x ;; esac')
    with pytest.raises(kind):
        asyncio.run(sky.Slurm(host="login").create_provider().provision(cluster(), 1))


def test_partitions_that_end_jobs_too_soon_are_left_out(commands: Path) -> None:
    script(commands, "scontrol", f"cat <<END\n{PARTITIONS}{NODES}END")

    async def offered(**given: str) -> list[Offer]:
        return [each async for each in sky.Slurm(**given).create_provider().offers()]  # type: ignore[arg-type]

    assert {each.region for each in asyncio.run(offered(partition="gpu,all", time="2-00"))} == {"gpu", "all"}
    found = asyncio.run(offered(partition="gpu,all", time="3-00"))
    assert {each.region for each in found} == {"all"}
    one = replace(cluster(), offer=found[0])
    provider = sky.Slurm(partition="gpu,all", time="3-00").create_provider()
    assert isinstance(provider, SlurmProvider)
    assert "--partition=all" in provider._submission(one, "0")
    with pytest.raises(sky.SpecError, match="^Partition gpu allows jobs of at most 2-00:00:00, and sky.Slurm asks for"):
        asyncio.run(offered(partition="gpu", time="3-00"))


def test_job_is_gone_only_if_the_controller_says_so_twice(commands: Path) -> None:
    provider = sky.Slurm().create_provider()
    for_one = 'case "$*" in *--jobs=5*) echo x >>{0}/asked; {1} ;; esac'
    script(commands, "squeue", for_one.format(commands, ""))
    with pytest.raises(SlurmError, match="does not list job 5"):
        asyncio.run(provider.get_instance(cluster(), "5"))
    invalid = 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1'
    script(commands, "squeue", for_one.format(commands, invalid))
    (commands / "asked").unlink()
    assert asyncio.run(sky.Slurm().create_provider().get_instance(cluster(), "5"))[1] is None
    assert (commands / "asked").read_text() == "x\nx\n"
    script(commands, "squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(SlurmError, match="^Unable to contact slurm controller$"):
        asyncio.run(sky.Slurm().create_provider().get_instance(cluster(), "5"))


def test_nodes_of_a_pool_share_a_listing(commands: Path) -> None:
    script(commands, "squeue", f"echo x >>{commands}/asked; echo '7|PENDING|None|n/a|0:00|skyward-two-1|'")

    async def poll() -> None:
        provider = sky.Slurm().create_provider()
        await asyncio.gather(*(provider.get_instance(cluster(), "7") for _ in range(50)))

    asyncio.run(poll())
    assert (commands / "asked").read_text() == "x\n"


def words(given: sky.Slurm, **fields: object) -> list[str]:
    provider = given.create_provider()
    assert isinstance(provider, SlurmProvider)
    return list(provider._submission(cluster(**fields), "0"))


@pytest.mark.usefixtures("commands")
def test_request_states_what_the_spec_and_the_settings_ask_for() -> None:
    given = sky.Slurm(partition="gpu,all", account="physics", time="02:00:00", options=["--qos=high"])
    found = words(given, vcpus=2.5, memory_gb=1.5, accelerator="A100:2")
    assert found == [
        *(
            "sbatch",
            "--parsable",
            "--no-requeue",
            "--nodes=1",
            "--ntasks=1",
            "--export=ALL",
            "--job-name=skyward-two-1",
        ),
        "--comment=skyward-owner=tests skyward-pool=two-1 skyward-request=r/0",
        *("--output=/dev/null", "--chdir=/", "--partition=gpu,all", "--account=physics", "--time=120"),
        *("--cpus-per-task=3", "--mem=1536M", "--gres=gpu:a100:2", "--qos=high"),
    ]
    assert "--gres=gpu:v100:1" in words(sky.Slurm(gres="gpu:v100:1"), accelerator="A100")
    assert not any(
        word.startswith(("--gres", "--mem", "--cpus", "--time", "--partition")) for word in words(sky.Slurm())
    )


def test_job_gets_no_other_variable_of_the_client(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be secrets, and those of a surrounding job would be options."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    monkeypatch.setenv("SBATCH_ACCOUNT", "physics")
    for name in ("SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_WAIT"):
        monkeypatch.setenv(name, "1")
    script(commands, "sbatch", f"env >{commands}/seen; echo 5")
    asyncio.run(sky.Slurm().create_provider().provision(cluster(), 1))
    names = {line.partition("=")[0] for line in (commands / "seen").read_text().splitlines()}
    assert {"PATH", "SLURM_CONF", "SBATCH_ACCOUNT"} <= names
    assert not {"AWS_SECRET_ACCESS_KEY", "SLURM_JOB_ID"} & names
    assert not {"SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_WAIT"} & names


def test_step_gets_no_option_of_a_surrounding_job(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(commands, "squeue", "echo '7|RUNNING|None|n1|0:00|skyward-two-1|'")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    (found,) = asyncio.run(sky.Slurm().create_provider().find(cluster()))
    assert isinstance(found.access, sky.providers.ExecAccess)
    assert found.access.command[:4] == ("env", "-u", "SLURM_NTASKS", "srun")
    assert found.access.starter == "/tmp/skyward-7"


@pytest.mark.parametrize(("architecture", "directory"), [("x86_64", "~/.skyward"), ("aarch64", "~/.skyward/arm64")])
def test_machines_of_other_architectures_share_no_environment(
    commands: Path, architecture: str, directory: str
) -> None:
    """Although they share the home directory."""
    script(commands, "squeue", "echo '7|RUNNING|None|n1|0:00|skyward-two-1|'")
    script(commands, "scontrol", f"echo NodeName=n1 Arch={architecture} NodeAddr=n1")
    script(commands, "srun", "echo address=10.0.0.1 interface=eth0")
    _, found = asyncio.run(sky.Slurm().create_provider().get_instance(cluster(), "7"))
    assert found is not None
    assert isinstance(found.access, sky.providers.ExecAccess)
    assert (found.status, found.address, found.access.directory) == ("running", "10.0.0.1", directory)


def test_directory_of_a_job_is_removed_although_files_appear_in_it_meanwhile(commands: Path, tmp_path: Path) -> None:
    """The shell that waited for a worker writes the worker's status there."""
    late = 'late="${2%/*}/late"; [ -e "$late" ] || { : >"$late"; mkdir "$2"; exit 1; }'
    script(commands, "rm", f'"{shutil.which("rm")}" "$@"; {late}')
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environ = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    with subprocess.Popen(["sh", "-c", batch_script(str(scratch), 60)], env=environ) as batch:
        wait_for((scratch / "skyward-7" / "ready").exists, "the script to be ready")
        batch.terminate()
        assert batch.wait(60) == 0
    assert [each.name for each in scratch.iterdir()] == ["late"]


def test_scripts_for_nodes_have_no_finding_of_shellcheck() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("there is no shellcheck here")
    for text in (batch_script("/tmp", 60), DESCRIBE):
        command = ["shellcheck", "--shell=sh", "--exclude=SC2317", "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert not done.stdout


def test_machine_that_is_part_of_an_offer_has_what_the_spec_asks_for() -> None:
    """Values that the spec leaves open are measured."""
    from skyward.control.act.machines.offers import SourceOffer
    from skyward.control.decide.machines.sources import MachineSource

    source = MachineSource("slurm", "here", "main", "on-demand", 0)
    part = SourceOffer(source, None, Spec(vcpus=2), OFFER, sky.Slurm())  # type: ignore[arg-type]
    assert (dict(part.resources), part.accelerators) == ({"CPU": 2}, "")
    whole = replace(part, offer=replace(OFFER, divisible=False))
    assert (dict(whole.resources), whole.accelerators) == ({"CPU": 2, "memory": 16}, "a100:2")


@pytest.mark.parametrize(
    ("asked", "described"),
    [
        ({}, "a part of it: the provider's default of vCPUs and memory"),
        ({"vcpus": 2}, "a part of it: 2 vCPUs, the provider's default of memory"),
        ({"vcpus": 1}, "a part of it: 1 vCPU, the provider's default of memory"),
        ({"vcpus": 2, "memory_gb": 4, "accelerator": "A100"}, "a part of it: A100, 2 vCPUs, 4 GiB"),
    ],
)
def test_quote_names_what_a_job_gets_of_a_machine(asked: dict[str, object], described: str) -> None:
    from skyward.control.act.machines.offers import SourceOffer
    from skyward.control.decide.machines.sources import MachineSource
    from skyward.pool.quotes import _quoted

    source = MachineSource("slurm", "here", "main", "on-demand", 0)
    part = SourceOffer(source, None, Spec(**asked), OFFER, sky.Slurm())  # type: ignore[arg-type]
    assert _quoted(part, None).hardware == described
    assert _quoted(replace(part, offer=replace(OFFER, divisible=False)), None).hardware == "A100:2, 4 vCPUs, 16 GiB"
    small = replace(OFFER, instance_type=InstanceType("small", 1, 2), divisible=False)
    assert _quoted(replace(part, spec=Spec(), offer=small), None).hardware == "1 vCPU, 2 GiB"


def test_memory_of_a_job_is_what_slurm_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    whole = hardware.vcpus(), hardware.memory_gb()
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "64")
    assert (hardware.vcpus(), hardware.memory_gb()) == whole, "a shell of `salloc` on a login node is no node"
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "1")
    assert (hardware.vcpus(), hardware.memory_gb()) == (1, 0.06)
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "1000")
    assert hardware.vcpus() == whole[0], "the process may be bound to fewer"
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "512")
    assert hardware.memory_gb() == 0.5
    assert hardware.gpus() == 0
    monkeypatch.setenv("SLURM_JOB_GPUS", "2,3")
    assert hardware.gpus() == 2

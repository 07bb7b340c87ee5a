"""The files in `deploy/` match the package: options, probes, extras; an environment with only these can serve."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer
import yaml
from packaging.requirements import Requirement

from bare_environment import ROOT, bare_environment
from beamwood.cli.main import app
from beamwood.serve.app import routes_of
from beamwood.serve.service import Service
from beamwood.serve.settings import ServeSettings
from served import Server, saved, wait_until

DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
EXTRAS = re.search(r"/source\[([a-z,]+)\]", CONTAINERFILE)[1].split(",")
OPTIONAL = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
UNIT = (DEPLOY / "beamwood.service").read_text()


def k8s():
    return {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "k8s.yaml").read_text())}


def compose():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def commands():
    """The arguments of `beamwood serve`, by file."""
    pod = k8s()["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    unit = re.search(r"^ExecStart=\S+/beamwood serve (.*)$", UNIT, re.MULTILINE)
    own = re.search(r"^CMD \[(.*)\]$", CONTAINERFILE, re.MULTILINE)
    return {
        "k8s": pod["args"],
        "compose": compose()["services"]["beamwood"]["command"],
        "unit": unit[1].split(),
        "image": re.findall(r'"([^"]*)"', own[1]),
    }


@pytest.mark.parametrize("name", ["k8s", "compose", "unit", "image"])
def test_commands_use_options_of_the_package(name):
    known = {option for one in typer.main.get_command(app).commands["serve"].params for option in one.opts}
    words = commands()[name]
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert options <= known
    assert "--store" in options
    # No server accepts remote connections without tokens.
    assert "--tokens" in options
    assert "--insecure" not in options
    assert not words[0].startswith("-")


def test_probes_use_existing_endpoints():
    service = Service(ServeSettings(log="none"))
    try:
        paths = {route.path for route in routes_of(service) if route.scope is None}
    finally:
        service.close()
    pod = k8s()["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    probes = {name: pod[name]["httpGet"]["path"] for name in pod if name.endswith("Probe")}
    # Liveness is not readiness: a restart does not mend a store that is down.
    assert probes == {"readinessProbe": "/readyz", "livenessProbe": "/livez"}
    assert paths >= {*probes.values()}


def test_the_health_check_of_the_image_asks_the_server_itself(tmp_path):
    """Not the proxy of the environment, which container engines pass on."""
    program = json.loads(re.search(r"^  CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)[1])
    environment = os.environ | {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}

    def is_healthy(port):
        words = [sys.executable, *(word.replace(str(ServeSettings().port), port) for word in program[1:])]
        return subprocess.run(words, env=environment, capture_output=True, timeout=60, check=False).returncode == 0

    model, _ = saved(tmp_path / "model")
    with Server(model, "--store", "memory", "--drain", "1h") as server:
        port = server.address.rpartition(":")[2]
        assert is_healthy(port)
        server.signal(signal.SIGTERM)
        wait_until(lambda: not is_healthy(port))
    assert not is_healthy(port)


def test_replicas_are_replaced_one_at_a_time():
    made = k8s()
    spec, pod = made["Deployment"]["spec"], made["Deployment"]["spec"]["template"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    for selector in (
        spec["selector"]["matchLabels"],
        made["Service"]["spec"]["selector"],
        made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector == labels
    assert made["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == made["Deployment"]["metadata"]["name"]
    # Each apply would set the number back that the autoscaler has chosen.
    assert "replicas" not in spec
    assert made["HorizontalPodAutoscaler"]["spec"]["minReplicas"] > made["PodDisruptionBudget"]["spec"]["minAvailable"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    seconds = [
        int(word[:-1].partition("=")[2]) for word in pod["containers"][0]["args"] if re.match("--(drain|grace)", word)
    ]
    stop = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > stop + sum(seconds)
    mounted = {each["name"] for each in pod["containers"][0]["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}
    assert compose()["services"]["redis"]["command"][-3:-1] == ["always", "--save"]


def test_a_pod_uses_the_resources_it_requests():
    pod = k8s()["Deployment"]["spec"]["template"]["spec"]
    one = pod["containers"][0]
    assert f"--threads={one['resources']['requests']['cpu']}" in one["args"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    named = {each["name"]: each["containerPort"] for each in one["ports"]}
    service = k8s()["Service"]["spec"]["ports"][0]
    assert {service["targetPort"]} | {one[probe]["httpGet"]["port"] for probe in one if probe.endswith("Probe")} == {
        "http"
    }
    # The default port of `beamwood serve`, because no --port is given.
    assert named == {"http": ServeSettings().port}
    assert not any(word.startswith("--port") for words in commands().values() for word in words)


def test_files_that_compose_refers_to_exist():
    made = compose()
    server = made["services"]["beamwood"]
    assert set(server["secrets"]) == made["secrets"].keys()
    used = {each.partition(":")[0] for one in made["services"].values() for each in one["volumes"]}
    assert {name for name in used if not name.startswith(".")} == made["volumes"].keys()
    assert (DEPLOY / server["build"]["context"] / server["build"]["dockerfile"]).samefile(DEPLOY / "Containerfile")
    assert server["depends_on"].keys() <= {name for name, one in made["services"].items() if "healthcheck" in one}
    asked = server["healthcheck"]["test"]
    assert asked[0] == "CMD"
    assert asked[-1] in CONTAINERFILE
    ends = int(server["stop_grace_period"].removesuffix("s"))
    assert ends > ServeSettings().drain + ServeSettings().grace


def test_the_unit_reloads_tokens_and_model():
    given = dict(line.split("=", 1) for line in UNIT.splitlines() if "=" in line and not line.startswith("#"))
    # A systemd credential is copied when the unit starts, so a reload would read the old tokens.
    assert "LoadCredential" not in given
    assert "%d" not in given["ExecStart"]
    assert given["ExecReload"].endswith("-HUP $MAINPID")
    assert int(given["TimeoutStopSec"]) > ServeSettings().drain + ServeSettings().grace
    assert "%S/" + given["StateDirectory"] in given["ExecStart"]


def test_systemd_accepts_the_unit(tmp_path):
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "beamwood.service"
    # systemd checks that the programs exist.
    unit.write_text(UNIT.replace("/opt/beamwood/bin/beamwood", sys.executable))
    done = subprocess.run(
        [program, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    own = [line for line in done.stderr.splitlines() if "beamwood.service" in line]
    assert not own, own
    unit.write_text(unit.read_text().replace("UMask", "UMaks"))
    said = subprocess.run(
        [program, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "UMaks" in said.stderr


def test_the_image_has_no_torch_and_does_not_run_as_root():
    assert set(EXTRAS) <= OPTIONAL.keys() - {"train", "dev"}
    assert "USER 10001" in CONTAINERFILE
    assert CONTAINERFILE.rindex("USER 10001") > CONTAINERFILE.rindex("RUN ")
    assert "torch" not in "\n".join(line for line in CONTAINERFILE.splitlines() if not line.startswith("#"))


def installed_bytes(bare):
    """The size of an environment, without tests, which the image leaves out, and without compiled bytecode."""
    walks = [os.walk(path.resolve()) for path in bare.folder.glob("lib/*/site-packages/*") if path.is_dir()]
    kept = [
        (folder, files)
        for walk in walks
        for folder, _, files in walk
        if not {"tests", "__pycache__"} & {*Path(folder).parts}
    ]
    return sum((Path(folder) / name).stat().st_size for folder, files in kept for name in files)


def test_the_packages_of_the_image_can_serve(tmp_path):
    """The environment has links to the distributions of the extras, and no others."""
    asked = [Requirement(line) for name in EXTRAS for line in OPTIONAL[name]]
    # Extras that depend on other extras.
    more = [each.name for each in asked] + ["uvloop", "httptools", "psycopg-binary"]
    bare = bare_environment(tmp_path / "image", source=True, more=more)
    assert installed_bytes(bare) < 400e6
    model, _ = saved(tmp_path / "model")
    imports = "import beamwood.serve.store.redis, beamwood.serve.store.postgres, beamwood.serve.monitoring.replay"
    bare.run("-c", imports)
    checked, refused = bare.beamwood(["serve", model, "--check", "--json"], ["serve", model, "--host", "0.0.0.0"])
    assert checked[0] == 0
    assert '"answered": 20' in checked[1]
    assert refused[0] == 2
    assert "--tokens" in refused[2]

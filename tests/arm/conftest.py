"""The emulated environment, made once for all tests; skips where this machine cannot have one."""

from pathlib import Path

import arm64
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--arm-cpu",
        action="append",
        choices=tuple(arm64.CPUS),
        help="a processor to emulate; repeatable; all of them without it",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Whatever asks for `cpu` runs on each processor, one processor after the other."""
    if "cpu" in metafunc.fixturenames:
        cpus = metafunc.config.getoption("--arm-cpu", None) or list(arm64.CPUS)
        metafunc.parametrize("cpu", cpus, scope="session")


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> arm64.Arm64:
    """The environment."""
    try:
        return arm64.Arm64(tmp_path_factory.mktemp("arm64"))
    except arm64.UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def first_python(environment: arm64.Arm64, pytestconfig: pytest.Config) -> Path:
    """Its interpreter on the first of the processors, for what does not depend on which it is."""
    return environment.python((pytestconfig.getoption("--arm-cpu", None) or list(arm64.CPUS))[0])


@pytest.fixture(scope="session")
def python(environment: arm64.Arm64, cpu: str) -> Path:
    """Its interpreter on one processor."""
    return environment.python(cpu)

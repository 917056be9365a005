import pytest

from precision_time.hardware.prices.offer import Market, Offer
from precision_time.planning.decision.api import plan

ASKED = {"epochs": 30, "global_batch_size": 256, "max_gpus": 16}
DEVICES = ("T4", "A100-SXM4-40GB", "H100-SXM5-80GB", "L40S")


def _offer(instance_type, device, devices, usd, *, cloud="aws", region="us-east-1", spot=None):
    return Offer(
        cloud=cloud, instance_type=instance_type, region=region, device=device, devices_per_instance=devices,
        usd_per_hour=usd, spot_usd_per_hour=spot, date="2025-01-01", source="made up for a test",
    )  # fmt: skip


OFFERS = (
    _offer("g4dn.metal", "T4", 8, 7.8),
    _offer("g4dn.metal", "T4", 8, 8.1, region="ca-central-1"),
    _offer("g4dn.metal", "T4", 8, 9.3, region="ap-south-1"),  # dearer and dirtier than both
    _offer("g4dn.xlarge", "T4", 1, 0.53),
    _offer("p4d.24xlarge", "A100-SXM4-40GB", 8, 32.0, spot=12.0),
    _offer("a2-highgpu-1g", "A100-SXM4-40GB", 1, 3.7, cloud="gcp", region="us-central1"),
    _offer("p5.48xlarge", "H100-SXM5-80GB", 8, 55.0, region="us-west-2"),
    _offer("8xh100", "H100-SXM5-80GB", 8, 24.0, cloud="lambda", region="europe-1"),
)
"""Of three devices; nobody rents the fourth. The prices are of no list."""


def _planned(**given):
    fields = {"devices": DEVICES, "prices": OFFERS, **ASKED, **given}
    return plan(fields.pop("model", "resnet50"), **fields)


@pytest.fixture(scope="session")
def planned():
    """Plans among the offers of this file."""
    return _planned


@pytest.fixture(scope="session")
def found():
    """A plan with everything in it."""
    return _planned(deadline="30h", budget=400, market=[market.value for market in Market])


@pytest.fixture(scope="session")
def offered():
    """The offers of this file."""
    return OFFERS

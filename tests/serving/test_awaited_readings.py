"""A write that waits reads everything that sees light again, or only the readings that are asked for."""

import time
from pathlib import Path

import pytest

from lumion_hw.acquisition.columns import Reader
from lumion_hw.errors import BusyError, ConfigError
from lumion_hw.serving.lease import Caller
from tests.serving.serving_bench import refused
from tests.serving.test_virtual_days import ADA, NOW_S, owned
from tests.waiting import until

HEATER, METER, WAITS_FOR = "mesh0.heater_ma.3", "meter0.power.1", "small:lease:waits_for"


def test_only_the_readings_that_are_asked_for_are_read_again(tmp_path: Path) -> None:
    with owned(tmp_path, fabric=False) as (clock, owner):
        owner.step(0.0)
        owner.lease.take("ada", ADA, lasts_s=86400.0, bound=False)
        clock.sleep(0.2)
        began_s = NOW_S + clock.now()
        owner.set_awaited("small:meter0:power:1", ADA)
        assert set(owner.write(HEATER, 1.0, ADA, waits_for_light=True)) == {METER}
        assert owner.point(METER).time_s >= began_s
        assert owner.point("meter0.power.2").time_s < began_s
        assert owner.point("sfp-a.rx_power_dbm").time_s < began_s
        assert owner.write(HEATER, 0.5, ADA) == ()
        owner.set_awaited("", ADA)
        assert set(owner.write(HEATER, 0.0, ADA, waits_for_light=True)) > {METER, "sfp-a.rx_power_dbm"}
        assert owner.point("sfp-a.rx_power_dbm").time_s >= began_s


def test_a_device_that_a_client_waits_for_is_not_read_for_others_meanwhile_but_at_least_every_two_seconds(
    tmp_path: Path,
) -> None:
    with owned(tmp_path, fabric=False) as (clock, owner):
        owner.step(0.0)
        owner.lease.take("ada", ADA, lasts_s=86400.0, bound=False)
        owner.set_awaited(METER, ADA)
        meter, module = (owner._readings._devices[name] for name in ("meter0", "sfp-a"))
        assert not meter.is_being_refreshed
        began_s = clock.now()
        paused = []
        while clock.now() < began_s + 2.5:
            owner.write(HEATER, 1.0, ADA, waits_for_light=True)
            paused.append(meter.is_being_refreshed)
            assert meter.silent is None, "the device has just answered"
            clock.sleep(0.1)
        assert not module.is_being_refreshed
        assert paused == sorted(paused, reverse=True)
        assert paused[0]
        assert not paused[-1]
        meter.update()
        owner.write(HEATER, 0.0, ADA, waits_for_light=True)
        assert meter.is_being_refreshed
        clock.sleep(0.3)
        assert not meter.is_being_refreshed


def test_devices_and_wildcards_name_several_readings(tmp_path: Path) -> None:
    with owned(tmp_path, fabric=False) as (_clock, owner):
        owner.step(0.0)
        owner.lease.take("ada", ADA, lasts_s=86400.0, bound=False)
        owner.set_awaited("meter0, sfp-*:rx_power_dbm", ADA)
        names = owner.write(HEATER, 1.0, ADA, waits_for_light=True)
        assert {name.partition(".")[0] for name in names} == {"meter0", "sfp-a", "sfp-b", "sfp-c"}
        assert {name.partition(".")[2] for name in names if name.startswith("sfp")} == {"rx_power_dbm"}


def test_it_is_the_holder_of_the_lease_who_asks_and_the_next_one_asks_anew(tmp_path: Path) -> None:
    with owned(tmp_path, fabric=False) as (_clock, owner):
        owner.step(0.0)
        with pytest.raises(BusyError):
            owner.set_awaited(METER, ADA)
        owner.lease.take("ada", ADA, lasts_s=60.0, bound=False)
        with pytest.raises(ConfigError, match=r"no reading 'meter0\.powr\.1'.*meter0\.power\.1"):
            owner.set_awaited("meter0.powr.1", ADA)
        with pytest.raises(ConfigError, match="no reading"):  # a setting changes nothing by itself
            owner.set_awaited(HEATER, ADA)
        owner.set_awaited(METER, ADA)
        assert owner.awaited == METER
        owner.lease.release(ADA)
        bob = Caller("bob", account="bob@lab")
        owner.lease.take("bob", bob, lasts_s=60.0, bound=False)
        assert owner.awaited == ""
        assert len(owner.write(HEATER, 0.0, bob, waits_for_light=True)) > 20


def test_a_client_of_pv_access_asks_by_a_process_variable(served, client, lease) -> None:
    with refused("BusyError: no client holds the lease"):
        client.put(WAITS_FOR, METER)
    lease(client, "ada")
    with refused("no reading 'meter7'"):
        client.put(WAITS_FOR, "meter7")
    client.put(WAITS_FOR, "small:meter0:power:1")
    assert client.get(WAITS_FOR) == "small:meter0:power:1"
    for current_ma in (2.0, 0.0):
        before_s = time.time()
        client.put("small:mesh0:heater_ma:3", current_ma, wait=True)
        stamp = client.get("small:meter0:power:1").raw.timeStamp
        assert stamp.secondsPastEpoch + 1e-9 * stamp.nanoseconds > before_s
    client.put("small:lease:owner", "")
    until(lambda: client.get(WAITS_FOR) == "")


def test_a_single_channel_of_a_meter_is_read_alone(served, monkeypatch) -> None:
    bench = served.owner.bench
    reader = Reader(bench, [METER])
    monkeypatch.setattr(bench.meters["meter0"], "read_all", None)
    (value,) = reader.read()
    assert value.number > 0.0

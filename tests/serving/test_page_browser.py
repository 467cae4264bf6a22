"""The page in a real browser: it shows the bench, reports stale values, and changes nothing without the lease."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from lumion_hw.fabric import FabricAlarm, JobStatus, UnitStatus
from lumion_hw.serving.lease import Caller
from lumion_hw.serving.page.server import PageServer
from lumion_hw.serving.state import AlarmSeverity, MarginSample, Point, ServedCurve, ServedEvent, ServedJob, ServedMesh
from tests.serving.chromium import browser, complaints, require_chromium
from tests.serving.page_states import HOSTILE, NOW_S, StagedOwner, a_fabric, a_joined_status, a_state
from tests.serving.serving_bench import Served, serving
from tests.waiting import until

pytestmark = pytest.mark.long

STALE_WITHIN_S = 1.0
# Says when the page first shows a word, by its own clock: a test that asks again and again comes too late.
WATCH = """
window.seen = {};
const place = document.getElementById("live-word");
const note = () => { window.seen[place.textContent] ??= performance.now(); };
new MutationObserver(note).observe(place, {childList: true, characterData: true, subtree: true});
"""
UNNAMED_SECTIONS = """
const named = (section) => document.getElementById(section.getAttribute("aria-labelledby"))?.textContent.trim();
return [...document.querySelectorAll("main section")].filter((section) => !named(section)).map((section) => section.id);
"""
UNNAMED_FIELDS = """
const named = (field) => field.labels?.length || field.textContent.trim();
const fields = [...document.querySelectorAll("input, select, button")];
return fields.filter((field) => !named(field)).map((field) => field.id);
"""
UNCOVERED_BESIDE_THE_BAR = """
const row = document.getElementById("live").getBoundingClientRect(), found = [];
const heights = [row.top, (row.top + row.bottom) / 2, row.bottom, innerHeight - 1];
for (let x = 1; x < innerWidth; x += 4) for (const y of heights) {
  const shown = document.elementFromPoint(x, y);
  if (!shown.closest("header")) found.push(`${x} ${y} ${shown.tagName} ${shown.id}`);
}
return found;
"""
DASHES_OF_ENDED = """
const ended = document.querySelectorAll(`#${arguments[0]} .circuit-gone`);
return [...ended].map((each) => each.getAttribute("stroke-dasharray"));
"""


@dataclass
class Seen:
    """A page in a browser."""

    driver: Any
    server: PageServer
    owner: Any

    def open(self) -> None:
        self.driver.get(self.server.address)
        until(lambda: self.word == "LIVE", 60.0)
        # The word comes with the first state, what it says with the next frame.
        until(lambda: self.text("#headline-word") != "WAITING" and self.text("#version"), 60.0)

    def text(self, selector: str) -> str:
        return str(
            self.driver.execute_script("return document.querySelector(arguments[0])?.textContent ?? ''", selector)
        )

    @property
    def word(self) -> str:
        return self.text("#live-word")

    def is_shown(self, selector: str) -> bool:
        script = "return document.querySelector(arguments[0])?.checkVisibility() ?? false"
        return bool(self.driver.execute_script(script, selector))

    def type(self, name: str, text: str) -> None:
        place = self.driver.find_element("id", name)
        place.clear()
        place.send_keys(text)

    def press(self, selector: str) -> None:
        self.driver.execute_script("document.querySelector(arguments[0]).click()", selector)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory) -> Iterator[Any]:
    require_chromium()
    with browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("bench")) as found:
        yield found


@pytest.fixture
def page(chromium, served) -> Iterator[Seen]:
    """The page of the small bench, emulated on wires."""
    with PageServer(served.owner, writes=True) as server:
        seen = Seen(chromium, server, served.owner)
        seen.open()
        yield seen
        left = complaints(chromium)
        chromium.get("about:blank")
    assert left == []


@pytest.fixture
def staged(chromium, tmp_path) -> Iterator[Seen]:
    """The page of an owner that publishes when the test says so."""
    owner = StagedOwner(tmp_path)
    with PageServer(owner) as server:
        yield Seen(chromium, server, owner)
        chromium.get("about:blank")


def rect(seen: Seen, puc: int, attribute: str) -> str:
    script = "return document.querySelector('#puc-' + arguments[0] + ' rect')?.getAttribute(arguments[1]) ?? ''"
    return str(seen.driver.execute_script(script, puc, attribute))


def test_states_paths_and_margins_change_after_a_commit(page, served) -> None:
    assert page.text("#headline-text") == "Calibrated, no circuits connected"
    assert not page.is_shown("#circuits"), "an empty section takes room"
    until(lambda: page.text("#mesh-summary").startswith("15 PUCs: 0 on circuits, 0 parked (unused) · heaters"), 30.0)
    cold = rect(page, 0, "class")
    caller = Caller("ada", account="ada@test")
    number = served.owner.lease.take("ada", caller, lasts_s=600.0, bound=False).number
    caller = Caller("ada", number=number)
    served.owner.wait(served.owner.start_job("connect", {"circuits": ["sfp-a:sfp-b"]}, caller), 120.0)
    until(lambda: page.text("#circuit-count") == "1 up", 30.0)
    until(lambda: "dB" in page.text("#circuit-rows .margin"), 30.0)
    assert re.fullmatch(r"1 circuit up, margin \d+\.\d dB at sfp-a:sfp-b", page.text("#headline-text"))
    until(lambda: page.text("#mesh-picture #path-0 title").startswith("sfp-a:sfp-b"), 30.0)
    path = served.owner.state.mesh.paths[0]
    shown = page.driver.execute_script("return document.querySelector('#mesh-picture #path-0').dataset.pucs")
    assert [int(each) for each in shown.split()] == list(path.pucs)
    hot = max(range(15), key=lambda puc: served.owner.state.mesh.heat_mw[puc])
    until(lambda: rect(page, hot, "class") != cold, 30.0)
    until(lambda: "DONE connect for ada" in page.text("#job-body"), 30.0)
    until(lambda: "The job connect of ada ended" in page.text("#event-list"), 30.0)
    page.press("#event-list li summary")
    until(lambda: '"what": "connect"' in page.text("#event-list li pre"), 30.0)
    served.owner.wait(served.owner.start_job("disconnect", {}, caller), 120.0)
    until(lambda: not page.is_shown("#circuits"), 30.0)
    until(lambda: not page.driver.find_elements("css selector", "#mesh-picture #path-0"), 30.0)
    served.owner.lease.release(caller)


def test_a_device_that_falls_silent_turns_stale_and_the_others_do_not(page, served) -> None:
    row = "[...document.querySelectorAll('tr.condition')].find((row) => row.device === 'meter0')"
    ask = f"return {row}?.textContent ?? ''"
    until(lambda: "OK" in page.driver.execute_script(ask), 60.0)
    served.emulated.faults.inject("meter0", "no_cable")
    until(lambda: "SILENT" in page.driver.execute_script(ask), 60.0)
    assert "STALE" in page.driver.execute_script(ask)
    assert "meter0" in page.text("#alarm-list")
    assert page.word == "LIVE"
    served.emulated.faults.end("meter0", "no_cable")
    until(lambda: "STALE" not in page.driver.execute_script(ask), 60.0)
    until(lambda: "SILENT" not in page.driver.execute_script(ask), 60.0)


def test_a_write_without_the_lease_is_refused_in_words_and_with_it_is_done(page, served) -> None:
    until(lambda: page.driver.find_element("id", "control").is_displayed(), 30.0)
    name = "sfp-c.enabled"
    page.type("token", page.server.token)
    page.type("owner", "eve")
    page.type("set-name", name)
    page.type("set-value", "false")
    before = served.owner.point(name).value
    page.press("#set-form button")
    until(lambda: "no client holds the lease" in page.text("#control-reply"), 30.0)
    assert served.owner.point(name).value == before
    page.press("#take")
    until(lambda: "you hold lease" in page.text("#control-lease"), 30.0)
    assert served.owner.state.lease.owner == "eve"
    page.type("set-value", "off" if before else "on")
    page.press("#set-form button")
    until(lambda: served.owner.point(name).value is (not before), 30.0)
    page.type("set-value", "on" if before else "off")
    page.press("#set-form button")
    until(lambda: served.owner.point(name).value is before, 30.0)
    page.press("#release")
    until(lambda: served.owner.lease.served().owner == "", 30.0)
    page.type("token", "guessed")
    page.press("#take")
    until(lambda: "the token is wrong" in page.text("#control-reply"), 30.0)
    refusals = complaints(page.driver)  # the browser reports each answer of 400 and above
    assert len(refusals) == 2
    assert all("/do/" in each for each in refusals)


def test_a_flag_is_changed_by_choosing_on_or_off(page) -> None:
    page.driver.get(page.server.address + "#device/sfp-a")
    field = "#device-page [aria-label='new value of enabled']"
    until(lambda: page.driver.find_elements("css selector", field), 60.0)
    (select,) = page.driver.find_elements("css selector", field)
    assert select.tag_name == "select"
    assert [option.text for option in select.find_elements("css selector", "option")] == ["", "on", "off"]


def test_a_lease_ends_with_the_page_that_holds_it(page, served) -> None:
    page.type("token", page.server.token)
    page.type("owner", "eve")
    page.press("#take")
    until(lambda: served.owner.lease.served().owner == "eve", 30.0)
    page.driver.get("about:blank")
    until(lambda: served.owner.lease.served().owner == "", 30.0)


def test_what_if_shows_way_and_budget_or_why_not_and_changes_nothing(page, served) -> None:
    driven = served.owner.point("mesh0.heaters_ma").value.tolist()
    page.press("#what-if-form button")
    until(lambda: page.text("#what-if-body") not in ("", "planning …"), 60.0)
    assert "PUCs, margin" in page.text("#what-if-body caption"), page.text("#what-if-body")
    assert "Planned circuits" in page.text("#what-if-body svg title")
    page.type("what-hops", "1")
    page.press("#what-if-form button")
    until(lambda: "Error" in page.text("#what-if-body"), 60.0)
    assert served.owner.state.circuits == ()
    assert served.owner.point("mesh0.heaters_ma").value.tolist() == driven
    assert len([each for each in complaints(page.driver) if "/what-if" in each]) == 1


def test_stale_is_shown_within_a_second_of_the_last_state(staged) -> None:
    def is_live() -> bool:
        staged.owner.publish()
        return staged.word == "LIVE"

    staged.driver.get(staged.server.address)
    until(is_live, 30.0)
    took_s = []
    for _ in range(3):  # a busy machine may be late once
        until(is_live, 30.0)
        staged.driver.execute_script(WATCH)
        script = "window.seen = {}; return [performance.timeOrigin, performance.now()]"
        staged.owner.publish()
        until(lambda: staged.text("#number") == str(staged.owner.state.number), 30.0)
        staged.owner.publish(time_s=NOW_S)
        last_ms = staged.driver.execute_script(script)[1]
        until(lambda: staged.word == "STALE", 30.0)
        took_s.append((staged.driver.execute_script("return window.seen.STALE") - last_ms) / 1000.0)
    assert 0.3 < min(took_s) < STALE_WITHIN_S
    assert "no new state for" in staged.text("#live-why"), "signs of life alone were taken for states"
    assert "STALE" in staged.text("#circuit-rows")
    assert staged.driver.execute_script("return document.title").startswith("STALE")


def test_a_server_that_is_gone_turns_the_page_stale_and_one_that_comes_back_live(chromium, tmp_path) -> None:
    owner = StagedOwner(tmp_path)
    with PageServer(owner) as server:
        port = int(server.address.rstrip("/").rpartition(":")[2])
        seen = Seen(chromium, server, owner)
        chromium.get(server.address)
        until(lambda: owner.publish() and seen.word == "LIVE", 60.0)
    until(lambda: seen.word == "STALE", 30.0)
    until(lambda: "nothing heard" in seen.text("#live-why"), 30.0)
    with PageServer(owner, port=port):
        until(lambda: owner.publish() and seen.word == "LIVE", 60.0)
        chromium.get("about:blank")
    complaints(chromium)


def test_a_connection_on_which_nothing_comes_is_made_anew(staged, monkeypatch) -> None:
    """After a sleep of the computer or a broken tunnel the page notices the lost connection."""
    staged.driver.get(staged.server.address)
    until(lambda: staged.owner.publish() and staged.word == "LIVE", 60.0)
    monkeypatch.setattr("lumion_hw.serving.page.stream.HEARTBEAT_PERIOD_S", 600.0)
    until(lambda: staged.word == "STALE", 60.0)
    staged.driver.execute_script(WATCH)
    until(lambda: staged.driver.execute_script("return window.seen.LIVE"), 60.0)


def test_a_page_that_is_open_for_long_holds_no_more_than_at_first(staged) -> None:
    def live_on(first: int, last: int) -> int:
        for number in range(first, last):
            events = tuple(ServedEvent(each, NOW_S + each, "looked", {}) for each in range(max(number - 99, 1), number))
            point = Point("meter0.power.1", 1e-6 * number, "W", time_s=NOW_S + number)
            points = {**staged.owner.state.points, point.name: point}
            state = staged.owner.publish(events=events, points=points, time_s=NOW_S + number)
            if not number % 20:
                until(lambda: staged.text("#number") == str(state.number), 60.0)  # noqa: B023 - asked at once
        return int(staged.driver.execute_script("return document.querySelectorAll('*').length"))

    def held() -> int:
        staged.driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        found = staged.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return int(next(each["value"] for each in found if each["name"] == "Nodes"))

    staged.driver.get(staged.server.address)
    staged.driver.execute_cdp_cmd("Performance.enable", {})
    elements = live_on(2, 201)
    # A part may come late, and what is not drawn yet is held until it is; what 600 updates leave behind is more.
    nodes = min(held() for _ in range(5))
    assert live_on(201, 801) < elements + 100
    until(lambda: held() < nodes + 200, 60.0)


def test_names_are_shown_as_text_whatever_they_hold(staged) -> None:
    state = a_state()
    name = f"sfp-a.{HOSTILE}"
    points = {
        **state.points,
        name: Point(name, HOSTILE, kind="choice", choices=(HOSTILE,), writable=True, time_s=NOW_S),
    }
    events = (ServedEvent(1, NOW_S, HOSTILE, {HOSTILE: HOSTILE}),)
    staged.owner.publish(points=points, events=events, bench=HOSTILE)
    staged.driver.get(staged.server.address)
    until(lambda: staged.text("#bench") == HOSTILE, 60.0)
    until(lambda: HOSTILE in staged.text("#event-list"), 30.0)
    assert HOSTILE in staged.text("#device-body")
    assert staged.driver.find_elements("css selector", "img") == []
    assert complaints(staged.driver) == []


def test_alarms_of_a_module_with_one_cause_are_one_line(staged) -> None:
    state = a_state()
    points = {**state.points}
    for device, lanes in (("sfp-a", (1, 2, 3)), ("sfp-b", (1,))):
        for lane in lanes:
            for quantity, alarm in (("tx_power_dbm", "dark"), ("prefec_ber", "no signal")):
                name = f"{device}.{quantity}.{lane}"
                points[name] = Point(name, None, "", time_s=NOW_S, severity=AlarmSeverity.MINOR, alarm=alarm)
    alone = Point("sfp-a.rx_power_dbm", 1.5, "dBm", time_s=NOW_S, severity=AlarmSeverity.MINOR, alarm="near overload")
    staged.owner.publish(points=points | {alone.name: alone})
    staged.driver.get(staged.server.address)
    until(lambda: "sfp-a no light (6 readings)" in staged.text("#alarm-list"), 30.0)
    assert "MINOR sfp-b no light (3 readings)" in staged.text("#alarm-list")
    assert "MINOR sfp-a rx power near overload" in staged.text("#alarm-list")
    script = "return document.querySelectorAll('#alarm-list li').length"
    assert staged.driver.execute_script(script) == 5  # with the silent sfp-c and the circuit of a_state()


def test_a_fault_of_the_controller_is_one_alarm_that_says_how_to_clear_it_on_a_served_bench(staged) -> None:
    trouble = "mesh0: the mesh controller has switched its heaters off. Clear each fault: `lumion faults BENCH --clear`"
    health = replace(a_state().health, faults=("ESTOP (id 1)",), trouble=trouble)
    staged.owner.publish(health=health)
    staged.driver.get(staged.server.address)
    says = "switched off: ESTOP (id 1). Remove the cause, then clear the fault with the call small:clear."
    until(lambda: says in staged.text("#alarm-list"), 30.0)
    assert "lumion faults" not in staged.text("#alarm-list")


def test_the_page_is_read_by_keyboard_and_by_screen_readers(staged) -> None:
    from selenium.webdriver.common.keys import Keys

    staged.driver.get(staged.server.address)
    until(lambda: staged.driver.find_elements("css selector", "#mesh-picture svg"), 60.0)
    until(lambda: staged.owner.publish() and staged.text("#circuit-rows .state") == "light", 60.0)
    assert staged.driver.execute_script(UNNAMED_SECTIONS) == []
    assert staged.driver.execute_script(UNNAMED_FIELDS) == []
    reached = []
    for _ in range(12):
        staged.driver.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(staged.driver.execute_script("return document.activeElement.getAttribute('href')"))
        if staged.driver.execute_script("return document.activeElement.id") == "mesh-picture":
            break
    assert reached[0] == "#circuits", "the first thing reached is the way past the rest"
    assert staged.driver.execute_script("return document.activeElement.id") == "mesh-picture"
    assert staged.driver.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    picture = staged.driver.find_element("id", "mesh-picture")
    picture.send_keys(Keys.ARROW_RIGHT)
    assert staged.text("#puc").startswith("PUC 0: bar, in use, 2.25 mW, sfp-a:sfp-b")
    picture.send_keys(Keys.ARROW_LEFT)
    assert staged.text("#puc").startswith("PUC 14: no state, free")


def test_on_a_phone_nothing_is_wider_than_the_screen(tmp_path) -> None:
    require_chromium()
    owner = StagedOwner(tmp_path)
    with PageServer(owner, writes=True) as server, browser(tmp_path / "profile", 390, 844) as driver:
        seen = Seen(driver, server, owner)
        driver.get(server.address)
        until(lambda: owner.publish() and seen.word == "LIVE", 60.0)
        until(lambda: driver.find_elements("css selector", "#mesh-picture svg"), 60.0)
        width = driver.execute_script("return document.documentElement.scrollWidth")
        picture = tmp_path / "phone.png"
        assert driver.save_screenshot(str(picture))
        uncovered = driver.execute_script(UNCOVERED_BESIDE_THE_BAR)
        stop_is_in_sight = driver.execute_script("return document.elementFromPoint(330, 815).id")
        driver.execute_script("window.scrollTo(0, document.body.scrollHeight)")
        end_of_page = driver.execute_script("return document.querySelector('footer').getBoundingClientRect().bottom")
        top_of_bar = driver.execute_script("return document.getElementById('stop').getBoundingClientRect().top")
    assert width <= 390
    assert picture.stat().st_size > 10_000
    assert uncovered == [], "LIVE and Stop have a row of their own, without text beside or below them"
    assert stop_is_in_sight == "stop"
    assert end_of_page <= top_of_bar


def test_stop_asks_for_the_token_and_needs_no_lease(page, served) -> None:
    page.press("#stop")
    until(lambda: page.is_shown("#stop-dialog"), 30.0)
    page.type("stop-token", "guessed")
    page.press("#stop-form .stop")
    until(lambda: "the token is wrong" in page.text("#stop-reply"), 30.0)
    assert served.owner.faults() == ()
    page.type("stop-token", page.server.token)
    page.press("#stop-form .stop")
    until(lambda: page.text("#headline-text").startswith("Controller fault ESTOP: all heaters are off"), 30.0)
    assert len(complaints(page.driver)) == 1  # the browser reports the refused request
    caller = Caller("ada", account="ada@test")
    served.owner.lease.take("ada", caller, lasts_s=600.0, bound=False)
    served.owner.clear_faults("ESTOP", caller)
    served.owner.lease.release(caller)


def test_a_device_has_a_page_with_its_readings_their_curves_and_its_settings(staged) -> None:
    for step in range(40):
        points = staged.owner.state.points
        if step < 20 or step > 30:  # twenty seconds without any sample
            staged.owner.readings_history.add(NOW_S - 100.0 + 2.0 * step, points)
    staged.driver.get(staged.server.address + "#device/sfp-a")
    until(lambda: staged.text("#device-head") == "sfp-a", 60.0)
    until(lambda: staged.driver.find_elements("css selector", "#device .curves .line"), 30.0)
    panels = staged.driver.execute_script(
        "return [...document.querySelectorAll('.panel h3')].map((h) => h.textContent)"
    )
    assert panels == ["power, dBm", "temperature, °C"]
    assert "-6.50 dBm" in staged.text("#device-page")
    assert staged.driver.find_elements("css selector", "#device .curves .gap")
    line = staged.driver.execute_script("return document.querySelector('#device .curves .line').getAttribute('d')")
    assert line.count("M") == 2, "the line crosses the gap"
    assert "enabled" in staged.text("#device-page [aria-label='Settings of sfp-a']")
    assert not staged.is_shown("#overview")
    staged.press("#device a[href='#']")
    until(lambda: staged.is_shown("#overview") and not staged.is_shown("#device"), 30.0)
    assert complaints(staged.driver) == []


def test_the_legend_of_the_margins_names_circuits_that_have_ended(staged) -> None:
    margins = ({"old:one": 7.0, "old:two": 7.2, "sfp-a:sfp-b": 9.5}, {"sfp-a:sfp-b": 9.4})
    staged.owner.history = tuple(MarginSample(NOW_S - 40.0 + 2.0 * step, margins[step > 9]) for step in range(20))
    staged.driver.get(staged.server.address)
    until(lambda: staged.driver.find_elements("css selector", "#margin-curves .line"), 60.0)
    legend = "return [...document.querySelectorAll('#margin-legend .legend')].map((each) => each.textContent)"
    expected = [" sfp-a:sfp-b", " ended: old:one", " ended: old:two"]
    until(lambda: staged.driver.execute_script(legend) == expected, 30.0)
    in_legend = staged.driver.execute_script(DASHES_OF_ENDED, "margin-legend")
    assert len(set(in_legend)) == 2, "two grey lines look alike"
    until(lambda: staged.driver.execute_script(DASHES_OF_ENDED, "margin-curves") == in_legend, 30.0)


def test_a_calibration_shows_its_stages_and_residuals_while_it_runs(staged) -> None:
    job = staged.owner.state.job
    assert job is not None
    for number, (stage, value) in enumerate((("survey", 4.0), ("sweeps", 3.0), ("global fit", 1.5))):
        job = job.with_progress(NOW_S + number, stage, number, 5).with_residual(NOW_S + number, "held_out_db", value)
    staged.owner.publish(job=job)
    staged.driver.get(staged.server.address)
    until(lambda: staged.text("#job-progress") == "global fit: 2 of 5", 60.0)
    assert staged.text("#job-head") == "Calibration"
    assert staged.text("#job .stages .now").strip("▶ ") == "global fit"
    label = "return document.querySelector('#job .spark').parentElement.getAttribute('aria-label')"
    assert staged.driver.execute_script(label) == "3 values from 4 to 1.5"


def test_a_scan_shows_its_curve_while_it_runs(staged) -> None:
    readings = {"meter0.power.1": (1e-3, 1e-6, None, None), "meter0.power.2": (None,) * 4}
    curve = ServedCurve("mesh0.heater_ma.3", "mA", (0.0, 0.5, 1.0, 1.5), "W", readings)
    job = ServedJob(3, "scan", "ada", NOW_S, "mesh0.heater_ma.3", 2, 4, curve=curve)
    staged.owner.publish(job=job)
    staged.driver.get(staged.server.address)
    until(lambda: staged.text("#job-progress") == "mesh0.heater_ma.3: 2 of 4", 60.0)
    label = "return document.querySelector('#job-curve svg').getAttribute('aria-label')"
    expected = "meter0.power.1, meter0.power.2 over mesh0.heater_ma.3: 2 of 4 points, -30 to 0 dBm"
    until(lambda: staged.driver.execute_script(label) == expected, 30.0)
    grown = replace(curve, readings={"meter0.power.1": (1e-3, 1e-6, 1e-5, None)})
    staged.owner.publish(job=replace(job, done=3, curve=grown))
    until(lambda: "3 of 4 points" in staged.driver.execute_script(label), 30.0)
    width = "return Number(document.querySelector('#job-curve svg').getAttribute('width'))"
    wide = staged.driver.execute_script(width)
    staged.driver.execute_script("document.getElementById('job').style.width = '400px'")
    until(lambda: staged.driver.execute_script(width) < min(wide, 400), 30.0)
    assert complaints(staged.driver) == []


def test_more_pages_than_a_browser_has_connections_all_show_the_bench(staged) -> None:
    driver, first = staged.driver, staged.driver.current_window_handle
    for number in range(8):  # a browser has six connections per server
        driver.switch_to.new_window("tab")
        driver.get(staged.server.address)
        until(lambda: staged.text("#number") not in ("–", ""), 60.0)
        staged.owner.publish(mesh=ServedMesh({number: "bar"}, (0.0,) * 15, frozenset(), frozenset(), ()))
    for handle in driver.window_handles:
        if handle != first:
            driver.switch_to.window(handle)
            driver.close()
    driver.switch_to.window(first)


def test_the_panel_of_joined_meshes_shows_lost_circuits_first_and_only_if_they_are_watched(staged) -> None:
    lost = "rack0:sfp-a:rack1:sfp-b"
    staged.owner.publish(joined=None)
    staged.driver.get(staged.server.address)
    until(lambda: staged.text("#headline-word") != "WAITING", 60.0)
    assert not staged.is_shown("#joined")
    staged.owner.publish(joined=a_joined_status(lost, unreachable="spine"))
    summary = "racks · 2 of 3 benches reachable · 1 of 2 circuits up"
    until(lambda: staged.text("#joined-summary") == summary, 60.0)
    tiles = "return [...document.querySelectorAll('#joined-benches .tile')].map((each) => each.innerText)"
    first, _, third = (" ".join(text.split()) for text in staged.driver.execute_script(tiles))
    assert (first, third) == ("rack0 reachable 2 circuits", "spine not reachable the connection was lost")
    rows = "return [...document.querySelectorAll('#joined-circuits tbody tr')].map((each) => each.innerText)"
    first, second = (" ".join(text.split()) for text in staged.driver.execute_script(rows))
    assert first.startswith(f"{lost} lost – bench spine has no segment")
    assert second == "rack1:sfp-b:rack0:sfp-a up 7.5"
    assert staged.text("#joined-change").startswith("last change: connect 2 circuits (racks-1-abc): kept, ")
    until(lambda: f"joined circuit {lost} lost" in staged.text("#alarm-list"), 60.0)
    staged.owner.publish(joined=None)
    until(lambda: not staged.is_shown("#joined"), 60.0)
    assert complaints(staged.driver) == []


def test_the_panel_of_servers_shows_conditions_spares_and_alarms(staged) -> None:
    fabric = a_fabric(
        severity="major",
        alarms=(
            FabricAlarm("major", "job train", "refused", "no spare is left"),
            FabricAlarm("minor", "spare c", "cold"),
        ),
        jobs=(JobStatus("train", ("a", "b"), "refused", "no spare is left"),),
        units=(
            UnitStatus("a", "in service", job="train", modules=("sfp-a",), replacements=("c",)),
            UnitStatus("b", "drained", "new memory", modules=("sfp-b",)),
            UnitStatus("c", "cold spare", modules=("sfp-c",)),
        ),
    )
    staged.owner.publish(fabric=fabric)
    staged.driver.get(staged.server.address)
    until(lambda: staged.text("#fabric-jobs") == "train: a – b REFUSED", 60.0)
    tiles = "return [...document.querySelectorAll('#fabric-units .tile')].map((each) => each.innerText)"
    first, second, third = (" ".join(text.split()) for text in staged.driver.execute_script(tiles))
    assert first == "a in service job train · job refused · can be replaced by c sfp-a"
    assert second == "b drained new memory sfp-b"
    assert third.startswith("c cold spare")
    until(lambda: "job train refused: no spare is left" in staged.text("#alarm-list"), 60.0)
    assert "spare c cold" in staged.text("#alarm-list")
    assert complaints(staged.driver) == []

// The headline, and all alarms below it; readings of a device with one cause are one alarm.

import { known, serverNow } from "/live.js";
import { SEVERITY, byId, duration, element, parent, quantity, setText, show } from "/format.js";

const SHOWN = 8, MOST_ALIKE = 3, WORDS = ["OK", "ATTENTION", "ALARM", "UNKNOWN"], NO_LIGHT = new Set(["dark", "no signal"]);
let announced = new Set(), listed = "";

export function deviceOf(point) {
  let device = "";
  for (const each of known.about.devices) if (point.startsWith(`${each.name}.`) && each.name.length > device.length) device = each.name;
  return device;
}

export function drawHeadline() {
  const [severity, text] = known.headline;
  setText(byId("headline-word"), WORDS[severity]);
  setText(byId("headline-text"), text);
  byId("headline").className = `headline-${severity}`;
  byId("headline-word").className = `state severity-${severity}`;
}

function pointAlarms(silent) {
  const groups = new Map();
  for (const [name, value] of known.points) {
    const severity = value[2];
    if (!severity) continue;
    const device = deviceOf(name), why = value[3] || SEVERITY[severity];
    if (device in silent) continue;
    const cause = NO_LIGHT.has(why) ? "no light" : why, key = JSON.stringify([severity, device || name, cause]);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push([severity, name, why]);
  }
  return mergeDevices([...groups].map(([key, members]) => {
    const [severity, device] = JSON.parse(key), whys = new Set(members.map((each) => each[2]));
    const name = members[0][1], words = device === name ? name : `${device} ${quantity(name.slice(device.length + 1))}`;
    return members.length === 1 ? [severity, words, members[0][2], device] : [severity, device, `${whys.size > 1 ? "no light" : members[0][2]} (${members.length} readings)`, device];
  }));
}

// The same alarm of many devices, such as all modules off during a calibration, is one line.
function mergeDevices(alarms) {
  const causeOf = ([severity, , why]) => `${severity} ${NO_LIGHT.has(why.split(" (")[0]) || why.startsWith("no light") ? "no light" : why}`;
  return [...Map.groupBy(alarms, causeOf).values()].flatMap((members) => {
    if (members.length <= MOST_ALIKE) return members.map((each) => each.slice(0, 3));
    const devices = members.map((each) => each[3]);
    return [[members[0][0], `${devices.slice(0, 2).join(", ")} and ${devices.length - 2} more`, causeOf(members[0]).slice(2)]];
  });
}

function findAlarms() {
  const found = [], silent = known.health?.silent ?? {};
  for (const [name, [since, why]] of Object.entries(silent)) found.push([3, name, `silent for ${duration(serverNow() - since)}: ${why}`]);
  const faults = known.health?.faults ?? [], clearing = known.about.writes ? "under Control" : `with the call ${known.about.bench}:clear`;
  for (const fault of faults) found.push([2, "mesh controller", `switched off: ${fault}. Remove the cause, then clear the fault ${clearing}.`]);
  // The maintenance fails because of the fault, and its message names commands for a bench that is not served.
  if (known.health?.trouble && !faults.length) found.push([2, "maintenance", known.health.trouble]);
  for (const alarm of [...known.fabric?.alarms ?? [], ...known.joined?.alarms ?? []]) found.push([alarm.severity, alarm.subject, [alarm.condition, alarm.reason].filter(Boolean).join(": ")]);
  // With a fault of the controller all circuits are dark, as the headline says.
  const circuits = faults.length ? [] : known.circuits.filter((circuit) => circuit.severity);
  for (const circuit of circuits) found.push([circuit.severity, circuit.name, circuit.fault || circuit.marks.join("; ") || circuit.unseen]);
  found.push(...pointAlarms(silent));
  return found.sort((one, other) => other[0] - one[0]);
}

/** Show all alarms; return the sentence that announces new grave ones. */
export function drawAlarms() {
  if (known.about === null) return "";
  const found = findAlarms(), now = JSON.stringify(found);
  if (now === listed) return "";
  listed = now;
  const rows = found.slice(0, SHOWN).map(([severity, name, why]) =>
    parent("li", "", element("span", `state severity-${severity}`, SEVERITY[severity]), " ", element("strong", "name", name), ` ${why}`));
  if (found.length > SHOWN) rows.push(element("li", "aside", `and ${found.length - SHOWN} more`));
  byId("alarm-list").replaceChildren(...rows);
  show("alarm-list", rows.length > 0);
  const grave = found.filter((each) => each[0] > 1).map((each) => each[1]);
  const fresh = grave.filter((name) => !announced.has(name));
  announced = new Set(grave);
  return fresh.length ? `Alarm: ${fresh.slice(0, 3).join(", ")}` : "";
}

// Controls that change the bench: hidden on a read-only server; they need the token and the lease.

import { known, serverNow } from "/live.js";
import { byId, duration, element, setText } from "/format.js";

const RENEW_MS = 20000;
const ARGUMENT = { connect: "circuits", disconnect: "circuits", fail: "unit", drain: "unit", repaired: "unit", calibrate: "out" };
const HINTS = { connect: "sfp-a:sfp-b, sfp-b:sfp-a", disconnect: "names; all without", fail: "server or accelerator", drain: "server or accelerator", repaired: "server or accelerator", calibrate: "file name; may be empty", recover: "" };

let lease = null, settings = "", faults = "";

async function request(action, values, options = {}) {
  try {
    const answer = await fetch(`/do/${action}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Lumion-Token": byId("token").value },
      body: JSON.stringify({ ...values, lease }),
      ...options,
    });
    const text = await answer.text();
    if (answer.ok) { showReply(""); return JSON.parse(text).done ?? true; }
    let reason = text.trim();
    try { const reply = JSON.parse(text); reason = `${reply.error}: ${reply.message}`; } catch { /* plain text */ }
    showReply(`Refused: ${reason}`);
  } catch { showReply("The server did not answer."); }
  return null;
}

function showReply(text) {
  for (const id of ["control-reply", "stop-reply"]) { setText(byId(id), text); byId(id).className = text ? "severity-2" : ""; }
}

// Stop needs the token but no lease. Without a token the dialog asks for it.
async function stop(announce) {
  if (!byId("token").value) { byId("stop-dialog").showModal(); return; }
  if (await request("stop", {})) { byId("stop-dialog").close(); announce("All heaters are off."); return; }
  if (!byId("stop-dialog").open) byId("stop-dialog").showModal();
}

/** Return a form that writes one setting; it needs the token and the lease of the section Control. */
export function settingForm(name, label) {
  const about = known.pointKinds.get(name), choices = about?.[4] === "flag" ? ["on", "off"] : about?.[3] ?? [];
  const form = element("form", "setting"), field = element(choices.length ? "select" : "input"), button = element("button", "small", "Write");
  if (choices.length) field.append(...["", ...choices].map((choice) => element("option", "", choice)));
  field.required = true; field.setAttribute("aria-label", label);
  form.append(field, button);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const done = await request("set", { name, value: typed(name, field.value) });
    if (done) field.value = ""; else field.title = byId("control-reply").textContent;
    field.setCustomValidity(done ? "" : byId("control-reply").textContent);
    if (!done) { field.reportValidity(); field.setCustomValidity(""); }
  });
  return form;
}

async function take(insteadOf) {
  const values = { owner: byId("owner").value };
  if (insteadOf) values.instead_of = insteadOf;
  const number = await request("take", values);
  if (typeof number === "number") lease = number;
  drawControl(new Set(["lease"]));
}

export function drawControl(changed) {
  if (!known.about?.writes) return;
  byId("control").hidden = byId("stop").hidden = false;
  if (changed.has("lease") && known.lease) {
    const held = known.lease;
    if (lease !== null && held.number > lease) lease = null;
    if (lease !== null && !held.owner && held.number === lease) lease = null;
    const mine = lease !== null && held.number === lease;
    const holder = mine ? `you hold lease ${held.number}` : held.owner ? `${held.owner} holds lease ${held.number}` : "the lease is free";
    setText(byId("control-lease"), holder);
    byId("release").disabled = !mine;
    byId("take-over").hidden = mine || !held.owner;
    setText(byId("take-over"), held.owner ? `Take over from ${held.owner}` : "Take over");
  }
  if (changed.has("health") && known.health) {
    const names = [...new Set((known.health.faults ?? []).map((fault) => fault.split(" ")[0]))];
    byId("fault-form").hidden = !names.length;
    if (names.join() !== faults) {
      faults = names.join();
      byId("fault-name").replaceChildren(...names.map((name) => element("option", "", name)));
    }
  }
  if (changed.has("point_kinds")) {
    const names = [...known.pointKinds].filter(([, about]) => about[2] && about[4] !== "array").map(([name]) => name);
    if (names.join() !== settings) {
      settings = names.join();
      byId("settings").replaceChildren(...names.map((name) => { const option = element("option"); option.value = name; return option; }));
    }
  }
}

function hintSetting() {
  const about = known.pointKinds.get(byId("set-name").value), value = known.points.get(byId("set-name").value);
  if (!about) { setText(byId("set-hint"), ""); return; }
  const limits = about[3].length ? about[3].join(", ") : about[4] === "flag" ? "true or false" : about[1] ? `${about[1][0]} to ${about[1][1]} ${about[0]}` : about[0];
  setText(byId("set-hint"), `now ${value ? value[0] : "–"}, read ${value ? duration(serverNow() - value[1]) : "–"} ago; ${limits}`);
}

function typed(name, text) {
  const kind = known.pointKinds.get(name)?.[4];
  if (kind === "flag") return text === "true" || text === "on" ? true : text === "false" || text === "off" ? false : text;
  if (kind === "number") return text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
  return text;
}

export function beginActions(announce) {
  const on = (id, event, act) => byId(id).addEventListener(event, (happened) => { happened.preventDefault(); act(); });
  on("lease-form", "submit", () => take());
  on("take-over", "click", () => take(known.lease.owner));
  on("release", "click", async () => { if (await request("release", {})) { lease = null; announce("Lease released."); } });
  on("stop", "click", () => stop(announce));
  on("stop-cancel", "click", () => byId("stop-dialog").close());
  on("stop-form", "submit", () => { byId("token").value = byId("stop-token").value; stop(announce); });
  on("fault-form", "submit", async () => {
    const name = byId("fault-name").value;
    if (await request("clear", { name })) announce(`Fault ${name} cleared.`);
  });
  on("job-form", "submit", async () => {
    const what = byId("job-what").value, text = byId("job-argument").value.trim(), values = {};
    if (text && ARGUMENT[what]) values[ARGUMENT[what]] = text;
    await request("job", { what, arguments: values });
  });
  on("set-form", "submit", async () => {
    const name = byId("set-name").value;
    if (await request("set", { name, value: typed(name, byId("set-value").value) })) hintSetting();
  });
  byId("set-name").addEventListener("input", hintSetting);
  byId("job-what").addEventListener("change", () => { byId("job-argument").placeholder = HINTS[byId("job-what").value]; });
  setInterval(() => { if (lease !== null) request("renew", {}); }, RENEW_MS);
  window.addEventListener("pagehide", () => { if (lease !== null) request("release", {}, { keepalive: true }); });
}

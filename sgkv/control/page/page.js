"use strict";
// Everything that is shown was said by the API with the visitor's own token, and goes in as text.

const EVERY_MS = 2000;
const byId = (id) => document.getElementById(id);
let token = "";
let timer = 0;

const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "");
const count = (number) => number.toLocaleString("en");
const sum = (counts) => Object.values(counts).reduce((total, one) => total + one, 0);
const bytes = (size) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  for (; size >= 1024 && at < units.length - 1; at += 1) size /= 1024;
  return `${size.toFixed(size < 10 && at ? 1 : 0)} ${units[at]}`;
};

// A column is [heading, value of a row, class of its cells].
const TABLES = {
  fleet: ["instances", [
    ["instance", (one) => one.name, "name"],
    ["heard from", (one) => `${one.silent_seconds.toFixed(0)} s ago`, "number"],
    ["hit rate", (one) => percent(sum(one.hit_pages), sum(one.hit_pages) + sum(one.miss_pages)), "number"],
    ["pages hit", (one) => count(sum(one.hit_pages)), "number"],
    ["pages missed", (one) => Object.entries(one.miss_pages).map(([why, n]) => `${why} ${count(n)}`).join(", "), ""],
    ["", (one) => (one.draining ? "draining" : ""), "bad"],
  ]],
  tiers: ["instances", [
    ["instance", (one) => one.instance, "name"],
    ["tier", (one) => one.tier, ""],
    ["device", (one) => one.device, ""],
    ["used", (one) => (one.usage ? bytes(one.usage[0]) : ""), "number"],
    ["of", (one) => (one.usage && one.usage[1] ? bytes(one.usage[1]) : ""), "number"],
    ["", (one) => (one.usage ? percent(one.usage[0], one.usage[1]) : ""), "number"],
    ["pages hit", (one) => count(one.hits), "number"],
  ], (rows) => rows.flatMap((one) => Object.entries(one.tiers).map(([tier, device]) => ({
    instance: one.name, tier, device, usage: one.usage[tier], hits: one.hit_pages[tier] || 0,
  })))],
  prefixes: ["prefixes", [
    ["namespace", (one) => one.namespace, "name"],
    ["last page", (one) => one.hash, "name"],
    ["tokens", (one) => count(one.tokens), "number"],
    ["lookups", (one) => count(one.lookups), "number"],
  ]],
  operations: ["operations", [
    ["what", (one) => one.what, ""],
    ["state", (one) => one.state, ""],
    ["done", (one) => `${count(one.done)} of ${count(one.total)}`, "number"],
    ["began", (one) => new Date(1000 * one.began).toLocaleString(), ""],
    ["why", (one) => one.why, "bad"],
  ]],
  pins: ["pins", [
    ["owner", (one) => one.owner, ""],
    ["tenant", (one) => one.tenant, ""],
    ["namespace", (one) => one.namespace, "name"],
    ["pages", (one) => count(one.pages), "number"],
    ["until", (one) => new Date(1000 * one.expires_at).toLocaleString(), ""],
  ]],
  namespaces: ["namespaces", [
    ["digest", (one) => one.digest, "name"],
    ["tenant", (one) => one.tenant, ""],
    ["weights", (one) => one.weights, "name"],
    ["pool", (one) => one.pool, ""],
    ["part", (one) => one.cell, ""],
    ["tokens a page", (one) => count(one.page_tokens), "number"],
  ]],
};

const cell = (kind, text, look) => {
  const made = document.createElement(kind);
  made.textContent = text;
  if (look) made.className = look;
  return made;
};

const line = (cells) => {
  const made = document.createElement("tr");
  made.append(...cells);
  return made;
};

const fill = (table, columns, rows) => {
  const head = line(columns.map(([name, , look]) => cell("th", name, look === "number" ? look : "")));
  const body = rows.map((row) => line(columns.map(([, value, look]) => cell("td", value(row), look))));
  table.replaceChildren(head, ...body);
  if (!rows.length) table.append(cell("caption", "none"));
};

const ask = async (what) => {
  const answer = await fetch(`v1/${what}`, { headers: { authorization: `Bearer ${token}` } });
  if (!answer.ok) throw new Error((await answer.json()).detail);
  return answer.json();
};

const show = async () => {
  const names = [...new Set(Object.values(TABLES).map(([what]) => what))];
  const answers = Object.fromEntries(await Promise.all(names.map(async (what) => [what, await ask(what)])));
  for (const [id, [what, columns, rows]] of Object.entries(TABLES)) {
    fill(byId(id), columns, rows ? rows(answers[what]) : answers[what]);
  }
};

const refresh = async () => {
  clearTimeout(timer);
  try {
    await show();
    document.querySelector("main").hidden = false;
    byId("state").textContent = `as of ${new Date().toLocaleTimeString()}`;
    byId("state").className = "";
  } catch (error) {
    byId("state").textContent = error.message;
    byId("state").className = "bad";
  }
  if (!document.hidden) timer = setTimeout(refresh, EVERY_MS);
};

byId("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  refresh();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && token) refresh();
});

"use strict";
// Shows what the process tells each second.

const COLOURS = 6;
const PRIORITY_MAX = 16;
const MOVES_MAX = 50;
const token = document.querySelector('meta[name="token"]').content;

const plots = {
  rate: new Plot("plot-rate", rate, 10_000),
  shares: new Plot("plot-shares", rate, 10_000),
  loss: new Plot("plot-loss", percent, 0.01),
  queue: new Plot("plot-queue", ms, 10),
};
let rings = { down: new Ring(), up: new Ring(), loss: new Ring(), queue: new Ring() };
let history;
const shares = new Map();

// Towards the mobile and from it, whichever end this is.
function ways(sample, of) {
  return sample.role === "mobile" ? [of.from_hop_bps, of.to_hop_bps] : [of.to_hop_bps, of.from_hop_bps];
}
const sum = (of) => known(of.to_hop_bps) || known(of.from_hop_bps)
  ? (of.to_hop_bps ?? 0) + (of.from_hop_bps ?? 0) : undefined;

function drawPlots(sample) {
  if (history) {
    const { to_hop_bps: to, from_hop_bps: from, loss, queue_ms: queue } = history;
    const [down, up] = ways(sample, { to_hop_bps: to, from_hop_bps: from });
    rings = { down: new Ring(down), up: new Ring(up), loss: new Ring(loss), queue: new Ring(queue) };
    history = undefined;
  }
  const { total } = sample;
  const [down, up] = ways(sample, total);
  rings.down.push(down);
  rings.up.push(up);
  rings.loss.push(total.loss);
  rings.queue.push(total.queue_ms);
  plots.rate.draw([
    { name: "down", value: rate(down), ring: rings.down, colour: 0 },
    { name: "up", value: rate(up), ring: rings.up, colour: 1 },
  ]);
  plots.loss.draw([{ name: "", value: percent(total.loss), ring: rings.loss, colour: 4 }]);
  plots.queue.draw([{ name: "", value: ms(total.queue_ms), ring: rings.queue, colour: 5 }]);
  show(plots.loss.figure, !sample.agent);
  show(plots.queue.figure, !sample.agent);
}

// Colours go to the fastest, and stay with whoever has one as long as it is there.
const worn = new Map();
function dress(names) {
  for (const name of worn.keys()) if (!names.includes(name)) worn.delete(name);
  const used = new Set(worn.values());
  for (const name of names) {
    if (worn.has(name) || used.size >= COLOURS) continue;
    let index = 0;
    while (used.has(index)) index += 1;
    worn.set(name, index);
    used.add(index);
  }
}

// The plot of shares is of programs, or of connections if no two programs are known.
function drawShares(groups) {
  const named = groups.filter((g) => g.program.name !== undefined && g.program.name !== null);
  const items = named.length > 1
    ? groups.map((g) => ({ key: `program ${g.name}`, name: g.name, bps: g.bps }))
    : groups.flatMap((g) => g.connections).map((c) => (
      { key: `connection ${c.name}`, name: c.target, bps: c.bps }));
  const fastest = items.toSorted((a, b) => (b.bps ?? 0) - (a.bps ?? 0)).slice(0, COLOURS);
  dress(fastest.map((item) => item.key));
  track(shares, items);
  const shown = items.filter((item) => worn.has(item.key));
  shown.sort((a, b) => worn.get(a.key) - worn.get(b.key));
  plots.shares.draw(shown.map((item) => ({
    name: item.name, value: rate(item.bps), ring: shares.get(item.key), colour: worn.get(item.key),
  })), true);
  show(plots.shares.figure, items.length > 0);
}

// Priorities.

let hiding;
function complain(text) {
  say($("toast"), text);
  show($("toast"), true);
  clearTimeout(hiding);
  hiding = setTimeout(() => show($("toast"), false), 8000);
}

async function post(of, priority) {
  try {
    const answer = await fetch("/priority", {
      method: "POST",
      headers: { "content-type": "application/json", "x-lasthop-token": token },
      body: JSON.stringify({ of, priority }),
    });
    if (!answer.ok) complain((await answer.text()).trim() || `refused (${answer.status})`);
    return answer.ok;
  } catch {
    complain("The process cannot be reached.");
    return false;
  }
}

// A slider. While somebody moves it, and until the process has said what came of it, it shows what
// was chosen here.
class Dial {
  constructor(of, label) {
    this.of = of;
    this.slider = make("input", { type: "range", min: 1, max: PRIORITY_MAX, step: 1, "aria-label": `Priority of ${label}` });
    this.output = make("output");
    this.reset = make("button", { type: "button", "aria-label": `Default priority of ${label}`, title: "As the configuration says" }, "↺");
    this.element = make("div", { class: "dial" }, this.slider, this.output, this.reset);
    this.slider.addEventListener("input", () => this.choose(Number(this.slider.value)));
    this.reset.addEventListener("click", () => this.choose(null));
    this.until = 0;
  }
  choose(priority) {
    this.chosen = priority;
    this.until = performance.now() + 4000;
    this.element.classList.add("waiting");
    if (priority !== null) this.mark(String(priority));
    this.send();
  }
  // One request at a time; what is chosen meanwhile goes with the next.
  async send() {
    if (this.sending) { this.again = true; return; }
    this.sending = true;
    do {
      this.again = false;
      if (!await post(this.of, this.chosen)) this.until = 0;
    } while (this.again);
    this.sending = false;
  }
  mark(text) {
    say(this.output, text);
    set(this.slider, "aria-valuetext", text);
  }
  show(priority, mixed) {
    const waits = performance.now() < this.until;
    if (waits && (this.sending || priority !== this.chosen) && this.chosen !== null) return;
    this.until = 0;
    this.element.classList.remove("waiting");
    const settable = known(priority) || mixed;
    if (this.slider.disabled === settable) {
      this.slider.disabled = !settable;
      this.reset.disabled = !settable;
    }
    this.mark(mixed ? "mixed" : known(priority) ? String(priority) : "–");
    const value = String(Math.min(known(priority) ? priority : 1, PRIORITY_MAX));
    if (this.slider.value !== value) this.slider.value = value;
  }
}

// Connections.

function cell(row, kind = "") {
  return row.appendChild(make("td", kind ? { class: kind } : {}));
}
function bar(td) {
  const inner = make("div");
  td.append(make("div", { class: "track", "aria-hidden": "true" }, inner));
  return inner;
}
function widen(inner, share) {
  const width = `${(100 * Math.min(1, share || 0)).toFixed(1)}%`;
  if (inner.style.width !== width) inner.style.width = width;
}

class ConnectionRow {
  constructor(connection) {
    this.row = make("tr", { class: "connection", "data-connection": connection.name });
    this.swatch = make("span", { class: "swatch", "aria-hidden": "true" });
    this.target = make("span");
    this.row.append(make("th", { scope: "row" }, this.swatch, this.target));
    [this.client, this.state] = [cell(this.row, "side"), cell(this.row, "side")];
    [this.down, this.up] = [cell(this.row, "n"), cell(this.row, "n mid")];
    this.share = bar(cell(this.row, "share mid"));
    [this.total, this.age] = [cell(this.row, "n mid"), cell(this.row, "n side")];
    this.dial = new Dial({ connection: connection.key }, `the connection to ${connection.target}`);
    const place = cell(this.row, "p");
    if (connection.key) place.append(this.dial.element);
  }
  show(sample, connection, all, shared) {
    say(this.target, connection.target);
    set(this.target, "title", connection.target);
    say(this.client, connection.client ?? "–");
    say(this.state, connection.state);
    const [down, up] = ways(sample, connection);
    say(this.down, rate(down));
    say(this.up, rate(up));
    set(this.row, "data-bps", String(connection.bps ?? ""));
    widen(this.share, connection.bps / all);
    const c = worn.get(`connection ${connection.name}`);
    colour(this.share, c ?? shared);
    colour(this.swatch, c);
    show(this.swatch, c !== undefined);
    say(this.total, bytes(connection.bytes_to_hop + connection.bytes_from_hop));
    say(this.age, age(connection.age_s));
    this.row.classList.toggle("quiet", !connection.bps);
    this.dial.show(connection.priority, false);
  }
}

class Group {
  constructor(group) {
    this.rows = new Map();
    this.body = make("tbody");
    this.row = make("tr", { class: "program", "data-program": group.name });
    this.swatch = make("span", { class: "swatch", "aria-hidden": "true" });
    this.toggle = make("button", { type: "button", class: "toggle", "aria-expanded": "true" }, group.name);
    this.many = make("span", { class: "many" });
    this.toggle.addEventListener("click", () => {
      set(this.toggle, "aria-expanded", this.isOpen() ? "false" : "true");
      redraw();
    });
    this.row.append(make("th", { scope: "rowgroup" }, this.toggle, this.swatch, this.many));
    cell(this.row, "side");
    cell(this.row, "side");
    [this.down, this.up] = [cell(this.row, "n"), cell(this.row, "n mid")];
    this.share = bar(cell(this.row, "share mid"));
    this.total = cell(this.row, "n mid");
    cell(this.row, "n side");
    const place = cell(this.row, "p");
    if (group.program.name) {
      this.dial = new Dial({ program: group.program.name }, `program ${group.name}`);
      place.append(this.dial.element);
    }
    this.body.append(this.row);
  }
  isOpen() { return this.toggle.getAttribute("aria-expanded") === "true"; }
  show(sample, group, all) {
    const { program } = group;
    const [down, up] = ways(sample, program);
    say(this.many, plural(program.connections, "connection"));
    say(this.down, rate(down));
    say(this.up, rate(up));
    say(this.total, bytes(program.bytes));
    set(this.row, "data-bps", String(group.bps ?? ""));
    widen(this.share, group.bps / all);
    const c = worn.get(`program ${group.name}`);
    colour(this.share, c);
    colour(this.swatch, c);
    show(this.swatch, c !== undefined);
    this.dial?.show(program.priority, program.mixed);
    const shown = this.isOpen() ? group.connections : [];
    const names = new Set(shown.map((connection) => connection.name));
    for (const [name, row] of this.rows) {
      if (!names.has(name)) { row.row.remove(); this.rows.delete(name); }
    }
    let last = this.row;
    for (const connection of shown) {
      let row = this.rows.get(connection.name);
      if (!row) {
        row = new ConnectionRow(connection);
        this.rows.set(connection.name, row);
      }
      if (last.nextSibling !== row.row) last.after(row.row);
      last = row.row;
      row.show(sample, connection, all, c);
    }
  }
}

const groups = new Map();
const table = document.querySelector("#connections table");

function grouped(sample) {
  const by = new Map(sample.programs.map((program) => {
    const name = program.name ?? "program unknown";
    return [program.name ?? null, { name, program, bps: sum(program), connections: [] }];
  }));
  for (const c of sample.connections) {
    c.bps = sum(c);
    by.get(c.program ?? null)?.connections.push(c);
  }
  return [...by.values()];
}

function drawConnections(sample, list) {
  const wanted = $("filter").value.trim().toLowerCase();
  const matches = (g, c) => [g.name, c.target, c.client ?? ""].some((t) => t.toLowerCase().includes(wanted));
  const all = list.reduce((n, g) => n + (g.bps ?? 0), 0);
  const shown = wanted === "" ? list : list
    .map((g) => ({ ...g, connections: g.connections.filter((c) => matches(g, c)) }))
    .filter((g) => g.connections.length > 0);
  const names = new Set(shown.map((g) => g.name));
  for (const [name, group] of groups) {
    if (!names.has(name)) { group.body.remove(); groups.delete(name); }
  }
  let last = table.tHead;
  for (const g of shown) {
    let group = groups.get(g.name);
    if (!group) {
      group = new Group(g);
      groups.set(g.name, group);
    }
    if (last.nextSibling !== group.body) last.after(group.body);
    last = group.body;
    group.show(sample, g, all);
  }
  const listed = shown.reduce((n, g) => n + g.connections.length, 0);
  const hidden = sample.connections_hidden > 0 ? `; ${sample.connections_hidden} slower ones are not listed` : "";
  const { opened, refused, closed } = sample.counters;
  say($("count"), `${listed} listed${hidden}; ${opened} opened, ${closed} closed, ${refused} refused since the start`);
  show(table.parentElement, list.length > 0);
  show($("none"), list.length === 0);
  show($("connections"), !sample.agent || list.length > 0);
}

// Everything else.

const peerName = (a) => a.base ?? a.peer?.slice(0, 8) ?? "–";

function drawAssociations(sample) {
  show($("associations"), sample.associations.length > 0);
  fill(document.querySelector("#associations tbody"), sample.associations.map((a) => {
    const [down, up] = ways(sample, a);
    return [peerName(a), a.address ?? "–", [a.state, a.state], [rate(down), "n"], [rate(up), "n"],
      [percent(a.loss), "n"], [ms(a.srtt_ms), "n"], [ms(a.queue_ms), "n"], [age(a.age_s), "n"]];
  }));
}

// The paths of associations that have several. Their plots have one scale, so that they can be compared.
const pathRates = new Map();
function drawPaths(sample) {
  const paths = sample.associations.flatMap((a) => (a.paths ?? []).map((p) => (
    { ...p, peer: peerName(a), key: `${a.id} ${p.name}`, bps: sum(p) })));
  show($("paths"), paths.length > 0);
  track(pathRates, paths);
  let top = 1;
  for (const ring of pathRates.values()) for (const bps of ring.values) top = Math.max(top, bps ?? 0);
  const body = document.querySelector("#paths tbody");
  fill(body, paths.map((p) => {
    const [down, up] = ways(sample, p);
    return [p.name, p.peer, [p.address ?? "–", "side"], [p.state, p.state], [rate(down), "n"], [rate(up), "n"],
      ["", "spark mid"], [percent(p.loss), "n"], [ms(p.srtt_ms), "n"], [ms(p.queue_ms), "n"],
      [bytes(p.bytes_sent), "n mid"], [bytes(p.bytes_received), "n mid"]];
  }));
  paths.forEach((p, i) => {
    const row = body.rows[i];
    set(row, "data-path", p.name);
    set(row, "data-bps", String(p.bps ?? ""));
    spark(row.querySelector(".spark"), pathRates.get(p.key), top);
  });
}

// Of packets beside the streams, where an association carries some.
function drawPackets(sample) {
  const { packets } = sample.total;
  show($("packets"), Boolean(packets));
  if (!packets) return;
  const { to_hop_per_s: to, from_hop_per_s: from, flows, bytes_held: held, dropped, given_up: lost, late } = packets;
  const [down, up] = sample.role === "mobile" ? [from, to] : [to, from];
  const speed = (n) => known(n) ? `${n.toFixed(0)}/s` : "–";
  say($("packets"), `Packets: down ${speed(down)}, up ${speed(up)}; ${plural(flows, "flow")}, ${bytes(held)} held; `
    + `${dropped} dropped, ${lost} given up, ${late} late since the start`);
}

const moves = [];
function drawHandoffs(sample) {
  const { handoffs, handoff, bases = [], peers = [] } = sample;
  show($("handoffs"), Boolean(handoffs || handoff) || bases.length > 1 || peers.length > 0);
  say($("moves"), !handoffs ? "" : sample.role === "mobile"
    ? `${handoffs.here} done, ${handoffs.refused} refused; ${plural(handoffs.lost, "connection")} lost`
    : `${plural(handoffs.here, "session")} came, ${handoffs.given} given away, ${handoffs.refused} refused; `
      + `connections: ${handoffs.anchored} anchored, ${handoffs.migrated} migrated, ${handoffs.lost} lost`);
  show($("bases"), bases.length > 0);
  fill($("bases").tBodies[0], bases.map((b) => [
    b.current ? `${b.name} (current)` : b.name, b.address, [b.state, b.state], b.interface ?? "–",
    [String(b.handoffs), "n"], [pause(b.last_pause_s), "n"]]));
  show($("peers"), peers.length > 0);
  fill($("peers").tBodies[0], peers.map((p) => {
    const state = p.up ? "up" : "down";
    return [p.name, p.address, [state, state]];
  }));
  if (sample.restarted) moves.length = 0;
  if (handoff) {
    if (moves[0]?.number !== handoff.number) moves.unshift({ since: new Date() });
    Object.assign(moves[0], handoff);
    moves.length = Math.min(moves.length, MOVES_MAX);
  }
  const list = $("moved");
  while (list.children.length > moves.length) list.lastChild.remove();
  moves.forEach((move, i) => {
    const item = list.children[i] ?? list.appendChild(make("li", {}, make("time"), make("span")));
    say(item.firstChild, move.since.toLocaleTimeString());
    const how = move.state === "under_way" ? "under way"
      : move.state === "done" ? `${plural(move.moved, "connection")} moved, ${move.lost} lost, pause ${pause(move.pause_s)}`
        : `failed (${move.reason ?? "no reason is known"}), ${plural(move.lost, "connection")} lost`;
    say(item.lastChild, `to ${move.to}: ${how}`);
    item.lastChild.className = move.state;
  });
}

function drawAgent({ agent }) {
  show($("agent"), Boolean(agent));
  if (!agent) return;
  const peer = agent.peer === undefined ? "" : agent.peer
    ? "; the agent at the other end of the hop is heard" : "; the agent at the other end of the hop is not heard";
  say($("schemes"), `${agent.schemes.join(", ")}; the link is ${agent.link || "not known"}${peer}`);
  const row = (i, side) => {
    const state = i.up ? "up" : "down";
    return [i.name, side, [state, state], [String(i.packets_received), "n"], [String(i.packets_sent), "n"],
      [bytes(i.bytes_received), "n"], [bytes(i.bytes_sent), "n"], [String(i.packets_missed), "n"], [String(i.packets_unsent), "n"]];
  };
  fill($("interfaces").tBodies[0], [row(agent.fixed, "fixed hosts"), row(agent.mobile, "mobiles")]);
  const counters = Object.entries(agent.counters ?? {});
  show($("counters"), counters.length > 0);
  fill($("counters").tBodies[0], counters.map(([name, n]) => {
    const speed = agent.counters_per_s[name];
    return [name, [String(n), "n"], [known(speed) ? speed.toFixed(1) : "–", "n"]];
  }));
}

let latest;
function redraw() {
  if (latest) drawConnections(latest.sample, latest.list);
}
function draw(sample) {
  const list = grouped(sample);
  latest = { sample, list };
  say($("role"), sample.role);
  document.title = `${sample.role} – lasthop`;
  say($("about"), [sample.hop, `version ${sample.version}`, `up ${age(sample.uptime_s)}`].filter(Boolean).join(" · "));
  drawPlots(sample);
  drawShares(list);
  drawAssociations(sample);
  drawPaths(sample);
  drawPackets(sample);
  drawConnections(sample, list);
  drawHandoffs(sample);
  drawAgent(sample);
}

function state(kind, text) {
  $("state").className = kind;
  say($("state"), text);
}

$("filter").addEventListener("input", redraw);
$("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

const events = new EventSource("/events");
events.addEventListener("plots", (event) => { history = JSON.parse(event.data); });
events.addEventListener("sample", (event) => {
  draw(JSON.parse(event.data));
  state("live", "live");
});
events.addEventListener("gone", (event) => state("gone", JSON.parse(event.data).why ?? "nobody answers"));
events.addEventListener("error", () => state("waiting", "connecting"));

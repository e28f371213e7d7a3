"use strict";
// What the page is made of: numbers as people read them, elements, tables and plots. Text from outside
// becomes text only: nothing here makes markup of it.

// How many values a plot has: two minutes, once a second.
const DEPTH = 120;
const $ = (id) => document.getElementById(id);

// What people read.

function scaled(value, units) {
  let i = 0;
  while (value >= 1000 && i < units.length - 1) { value /= 1000; i += 1; }
  const digits = i === 0 ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
  return `${value.toFixed(digits)} ${units[i]}`;
}
const known = (value) => value !== undefined && value !== null && Number.isFinite(value);
const rate = (bps) => known(bps) ? scaled(bps, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"]) : "–";
const bytes = (n) => known(n) ? scaled(n, ["B", "kB", "MB", "GB", "TB"]) : "–";
const percent = (share) => known(share) ? `${(share * 100).toFixed(1)} %` : "–";
const ms = (t) => known(t) ? `${t < 100 ? t.toFixed(1) : t.toFixed(0)} ms` : "–";
const pause = (s) => known(s) ? ms(s * 1000) : "–";
function age(s) {
  if (!known(s)) return "–";
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  if (s < 60) return `${s.toFixed(0)}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${two(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${two(s / 60 % 60)}m`;
  return `${Math.floor(s / 86400)}d${two(s / 3600 % 24)}h`;
}
const plural = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

// Elements. What has not changed is not touched: there may be hundreds of rows.

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
function svg(tag, attributes = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
function set(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}
function show(element, shown) {
  if (element.hidden === shown) element.hidden = !shown;
}
function colour(element, index) {
  const value = index === undefined ? "" : `var(--s${index})`;
  if (element.style.getPropertyValue("--c") !== value) element.style.setProperty("--c", value);
}

// A table body whose rows are those of a list: each is [cells], a cell is text or [text, class].
function fill(body, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, i) => {
    const row = body.rows[i] ?? body.insertRow();
    cells.forEach((cell, j) => {
      const [text, kind] = Array.isArray(cell) ? cell : [cell, ""];
      const td = row.cells[j] ?? row.insertCell();
      say(td, text);
      if (td.className !== kind) td.className = kind;
    });
  });
}

// Values over time.

class Ring {
  constructor(values = []) { this.values = values.slice(-DEPTH); }
  push(value) {
    this.values.push(known(value) ? value : null);
    if (this.values.length > DEPTH) this.values.shift();
  }
  // The values at DEPTH places, the last one now.
  padded() { return [...Array(Math.max(0, DEPTH - this.values.length)).fill(null), ...this.values]; }
}

// The rates so far of what there is: items are { key, bps }. What is gone is forgotten.
function track(rings, items) {
  const keys = new Set(items.map((item) => item.key));
  for (const key of rings.keys()) if (!keys.has(key)) rings.delete(key);
  for (const item of items) {
    if (!rings.has(item.key)) rings.set(item.key, new Ring());
    rings.get(item.key).push(item.bps);
  }
}

// A round number that is not below `value`, nor far above it.
function nice(value, least) {
  value = Math.max(value, least);
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((n) => n * power).find((n) => n >= value * 0.999);
}

// Where values are drawn, of any size.
function canvas() {
  return svg("svg", { viewBox: `0 0 ${DEPTH - 1} 100`, preserveAspectRatio: "none", "aria-hidden": "true" });
}

// Values as the outline of what is drawn of them; `top` is at the upper edge.
function outline(line, kind, top, below) {
  const y = (v) => (100 - 100 * v / top).toFixed(2);
  const pieces = [];
  let from = -1;
  for (let x = 0; x <= line.length; x += 1) {
    const there = x < line.length && line[x] !== null;
    if (there && from < 0) from = x;
    if (there || from < 0) continue;
    const points = [];
    for (let i = from; i < x; i += 1) points.push(`${i} ${y(line[i])}`);
    if (kind !== "stroke") {
      for (let i = x - 1; i >= from; i -= 1) points.push(`${i} ${y(below?.[i] ?? 0)}`);
    }
    pieces.push(`M${points.join("L")}${kind === "stroke" ? "" : "Z"}`);
    from = -1;
  }
  return pieces.join("");
}

class Plot {
  constructor(id, text, least) {
    this.figure = $(id);
    this.text = text;
    this.least = least;
    this.legend = this.figure.querySelector("figcaption");
    this.graph = canvas();
    const frame = make("div", { class: "plot" });
    this.marks = [0, 0.5, 1].map((share) => {
      this.graph.append(svg("path", { class: "grid", d: `M0 ${100 - 100 * share}H${DEPTH - 1}` }));
      const mark = make("div", { class: "mark" });
      mark.style.top = `${100 - 100 * share}%`;
      frame.append(mark);
      return mark;
    });
    frame.append(this.graph);
    const ends = make("div", { class: "ends" }, make("span", {}, "2 min ago"), make("span", {}, "now"));
    this.figure.append(frame, ends);
    this.paths = [];
    this.labels = [];
  }

  // Series are { name, value, ring, colour }; stacked ones add up.
  draw(series, stacked) {
    const lines = series.map((s) => s.ring.padded());
    if (stacked) {
      for (let i = 1; i < lines.length; i += 1) {
        lines[i] = lines[i].map((v, x) => (v ?? 0) + (lines[i - 1][x] ?? 0));
      }
    }
    const top = nice(Math.max(0, ...lines.flat().map((v) => v ?? 0)), this.least);
    this.marks.forEach((mark, i) => say(mark, this.text(top * i / 2)));
    const classes = stacked ? ["band"] : ["fill", "stroke"];
    const paths = lines.flatMap((line, i) => classes.map((kind) => ({
      kind, colour: series[i].colour, d: outline(line, kind, top, stacked ? lines[i - 1] : undefined),
    })));
    while (this.paths.length > paths.length) this.paths.pop().remove();
    paths.forEach((path, i) => {
      this.paths[i] ??= this.graph.appendChild(svg("path"));
      set(this.paths[i], "class", path.kind);
      set(this.paths[i], "d", path.d);
      colour(this.paths[i], path.colour);
    });
    while (this.labels.length > series.length) this.labels.pop().remove();
    series.forEach((s, i) => {
      this.labels[i] ??= this.legend.appendChild(make("span"));
      say(this.labels[i], `${s.name} ${s.value}`.trim());
      this.labels[i].className = s.name === "" ? "plain" : "";
      colour(this.labels[i], s.colour);
    });
  }
}

// The plot in a row of a table. What has no text of its own is left alone when the row is filled.
function spark(td, ring, top) {
  if (!td.firstChild) {
    td.append(canvas());
    td.firstChild.append(svg("path"));
  }
  set(td.querySelector("path"), "d", outline(ring.padded(), "stroke", top));
}

"use strict";
// Everything here is an extra: the page is whole without it. What is chosen stands in the address.

const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

function make(tag, properties = {}, ...inside) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...inside);
  return element;
}

// ---- The address: `#r0-op-3` is a place, `#icicle=r0-4&search=conv` what is chosen.
// A hand-written address may end in a bare `%`, which is text then.
function decoded(hash) {
  try {
    return decodeURIComponent(hash.slice(1));
  } catch {
    return hash.slice(1);
  }
}

function readState() {
  const text = decoded(location.hash);
  if (/^r\d+-op-\d+$/.test(text)) return new URLSearchParams({ operator: text });
  return new URLSearchParams(text.includes("=") ? location.hash.slice(1) : "");
}

function choose(changes, { replace = false } = {}) {
  const state = readState();
  for (const [name, value] of Object.entries(changes)) {
    if (value) state.set(name, value);
    else state.delete(name);
  }
  const hash = state.size === 1 && state.has("operator") ? state.get("operator") : `${state}`;
  const address = location.href.split("#")[0] + (hash && `#${hash}`);
  history[replace ? "replaceState" : "pushState"](null, "", address);
  show();
}

const keyOf = (name, run) => (run === "r0" ? name : `${run}.${name}`);

// ---- Operator tables: sort, search, classes, columns.
const narrow = matchMedia("(max-width: 64rem)");

function sortValue(cell) {
  const value = cell.dataset.value;
  if (value === undefined) return cell.textContent.trim().toLowerCase();
  return value === "" ? null : Number(value);
}

function compareValues(one, other, direction) {
  if (one === null || other === null) return (one === null) - (other === null);
  if (typeof one === "number") return direction * (one - other);
  return direction * one.localeCompare(other, "en", { numeric: true });
}

function prepareTable(tools) {
  const run = tools.dataset.run;
  const table = document.getElementById(`${run}-table`);
  const headings = [...table.tHead.rows[0].cells];
  const rows = [...table.tBodies[0].rows];
  const named = headings.filter((heading) => heading.dataset.name);
  const key = (name) => keyOf(name, run);

  for (const heading of named) {
    $("button", heading).addEventListener("click", () => {
      const first = heading.dataset.first ?? "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const order = heading.getAttribute("aria-sort") === first ? other : first;
      choose({ [key("sort")]: `${heading.dataset.name}.${order}` }, { replace: true });
    });
  }
  const input = $("input", tools);
  input.addEventListener("input", () => choose({ [key("search")]: input.value }, { replace: true }));

  function boxes(legend, name, choices) {
    const fieldset = make("fieldset", { className: "choices" }, make("legend", {}, legend));
    for (const [value, text] of choices) {
      const box = make("input", { type: "checkbox", value });
      box.addEventListener("change", () => {
        const chosen = $$("input", fieldset).filter((each) => each.checked).map((each) => each.value);
        choose({ [key(name)]: chosen.join("~") || (name === "columns" && "none") }, { replace: true });
      });
      fieldset.append(make("label", {}, box, ` ${text}`));
    }
    return fieldset;
  }
  const counts = new Map();
  for (const { dataset } of rows) counts.set(dataset.class, (counts.get(dataset.class) ?? 0) + 1);
  const classes = boxes("Only these classes", "class",
    [...counts].map(([name, count]) => [name, `${name} (${count})`]));
  const free = named.filter((heading) => heading.scope === "col" && heading.cellIndex !== rowHeader());
  const columns = boxes("Columns", "columns",
    free.map((heading) => [heading.dataset.name, heading.textContent.trim()]));
  tools.append(
    make("details", {}, make("summary", {}, "Filter by class"), classes),
    make("details", {}, make("summary", {}, "Choose columns"), columns));

  function rowHeader() {
    return [...(rows[0]?.cells ?? [])].findIndex((cell) => cell.scope === "row");
  }

  return (state) => {
    const chosen = state.get(key("columns"))?.split("~");
    const least = narrow.matches ? 0 : 1;
    const isShown = headings.map((heading, index) =>
      index === rowHeader() || !heading.dataset.name ||
      (chosen ? chosen.includes(heading.dataset.name) : Number(heading.dataset.level) <= least));
    for (const row of [table.tHead.rows[0], ...rows]) {
      isShown.forEach((shown, index) => { row.cells[index].hidden = !shown; });
    }
    for (const box of $$("input", columns)) {
      box.checked = isShown[headings.findIndex((each) => each.dataset.name === box.value)];
    }
    const wanted = state.get(key("class"))?.split("~") ?? [];
    for (const box of $$("input", classes)) box.checked = wanted.includes(box.value);
    if (document.activeElement !== input) input.value = state.get(key("search")) ?? "";
    const words = (state.get(key("search")) ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word)) ||
        (wanted.length > 0 && !wanted.includes(row.dataset.class));
    }
    const count = rows.filter((row) => !row.hidden).length;
    $("[role=status]", tools).textContent = `${count} of ${rows.length} operators`;
    const [name, order] = (state.get(key("sort")) ?? "").split(".");
    const heading = named.find((each) => each.dataset.name === name);
    for (const each of headings) each.removeAttribute("aria-sort");
    heading?.setAttribute("aria-sort", order);
    const direction = order === "ascending" ? 1 : -1;
    const at = heading?.cellIndex;
    const sorted = heading ? [...rows].sort((a, b) =>
      compareValues(sortValue(a.cells[at]), sortValue(b.cells[at]), direction)) : rows;
    table.tBodies[0].append(...sorted);
  };
}

// ---- The drawer: everything that a row knows, by the headings of its table.
const drawer = document.getElementById("drawer");

function showDrawer(state) {
  const row = document.getElementById(state.get("operator") ?? "");
  if (!row?.matches("tr[id]")) {
    if (drawer.open) drawer.close();
    return;
  }
  const headings = row.closest("table").tHead.rows[0].cells;
  $("h2", drawer).textContent = $("th", row).textContent;
  $("dl", drawer).replaceChildren(...[...row.cells].flatMap((cell, index) => {
    const text = cell.textContent.trim();
    if (!headings[index].dataset.name || cell.scope || ["", "–"].includes(text)) return [];
    const told = make("dd", {}, ...[...cell.childNodes].map((node) => node.cloneNode(true)));
    return [make("div", {}, make("dt", {}, headings[index].textContent.trim()), told)];
  }));
  const rows = $$("tr[id]", row.closest("tbody")).filter((each) => !each.hidden);
  const place = rows.indexOf(row);
  for (const [name, other] of [["before", rows[place - 1]], ["after", rows[place + 1]]]) {
    const link = $(`.${name}`, drawer);
    link.hidden = !other;
    if (other) link.href = `#${other.id}`;
  }
  if (!drawer.open) drawer.showModal();
}

$("button", drawer).addEventListener("click", () => drawer.close());
drawer.addEventListener("close", () => {
  const row = document.getElementById(readState().get("operator") ?? "");
  if (row === null) return;
  choose({ operator: null });
  $("a", row).focus();
});
drawer.addEventListener("click", (event) => { if (event.target === drawer) drawer.close(); });
// With such a key held down it is the browser's own: zoom, or the page before.
const isBrowsers = (event) => event.ctrlKey || event.metaKey || event.altKey;

document.addEventListener("keydown", (event) => {
  if (!drawer.open || isBrowsers(event)) return;
  const link = $({ ArrowLeft: ".before", ArrowRight: ".after" }[event.key] ?? ".none", drawer);
  if (link && !link.hidden) choose({ operator: link.hash.slice(1) }, { replace: true });
});

// ---- Icicles: a box alone with what it is in and what it holds; arrows walk from box to box.
function prepareIcicle(icicle) {
  const run = icicle.dataset.run;
  const trees = $$(".tree", icicle);
  const widths = trees.map((tree) => tree.style.width);
  for (const radio of $$("input", icicle)) {
    radio.addEventListener("change", () =>
      choose({ [keyOf("view", run)]: radio.value === "sides" ? null : radio.value }));
  }
  for (const tree of trees) {
    for (const link of $$("a", tree)) link.tabIndex = -1;
    $("a", tree).tabIndex = 0;
    tree.addEventListener("mouseover", ({ target }) => {
      const link = target.closest("a");
      if (link && !link.title) link.title = link.textContent;
    });
    tree.addEventListener("keydown", (event) => {
      if (isBrowsers(event)) return;
      const item = event.target.closest("li");
      const beside = (step) => {
        let other = item[step];
        while (other?.hidden) other = other[step];
        return other;
      };
      const next = {
        ArrowDown: () => $("ul > li:not([hidden])", item),
        ArrowUp: () => item.parentElement.closest("li"),
        ArrowLeft: () => beside("previousElementSibling"),
        ArrowRight: () => beside("nextElementSibling"),
        Escape: () => { choose({ icicle: null }); return $("li", tree); },
      }[event.key]?.();
      if (next === undefined) return;
      event.preventDefault();
      if (next === null) return;
      for (const link of $$("a", tree)) link.tabIndex = -1;
      $("a", next).tabIndex = 0;
      $("a", next).focus();
    });
  }
  return (state) => {
    const [owner, box] = (state.get("icicle") ?? "").split("-");
    const view = state.get(keyOf("view", run)) ?? "sides";
    for (const radio of $$("input", icicle)) radio.checked = radio.value === view;
    const found = trees.map((tree) => {
      for (const item of $$("li", tree)) item.hidden = false;
      let item = owner === run ? $(`[data-box="${Number(box)}"]`, tree) : null;
      const width = Number(item?.style.getPropertyValue("--w") ?? 0);
      for (let up = item?.parentElement.closest("li"); up; item = up, up = up.parentElement.closest("li")) {
        for (const each of item.parentElement.children) each.hidden = each !== item;
      }
      return width;
    });
    const isZoomed = Math.max(...found) > 0;
    const longest = Math.max(...found.slice(0, 2));
    trees.forEach((tree, index) => {
      const share = tree.closest(".difference") ? 1 : found[index] / longest;
      tree.style.width = isZoomed ? `${share * 100}%` : widths[index];
    });
  };
}

// What an address shows a part of must be seen, however the page folds it.
function unfold(section) {
  for (const details of [section.closest("details"), $("details", section)]) {
    if (details) details.open = true;
  }
}

// ---- Timelines: nearer and further, by buttons, keys or a click.
function prepareTimeline(section) {
  const run = section.dataset.run;
  const [least, whole] = [10, 1000];
  const window_ = () => {
    const [from, to] = (readState().get(keyOf("timeline", run)) ?? "").split("-").map(Number);
    return to > from ? [from, to] : [0, whole];
  };
  function move(scale, shift, middle) {
    const [from, to] = window_();
    const width = Math.min(whole, Math.max(least, (to - from) * scale));
    const centre = (middle ?? (from + to) / 2) + shift * width;
    const start = Math.round(Math.min(whole - width, Math.max(0, centre - width / 2)));
    const isWhole = width >= whole;
    choose({ [keyOf("timeline", run)]: isWhole ? null : `${start}-${Math.round(start + width)}` },
      { replace: true });
  }
  const moves = {
    "+": ["Nearer", 0.5, 0], "-": ["Further", 2, 0], ArrowLeft: ["Earlier", 1, -0.5],
    ArrowRight: ["Later", 1, 0.5], 0: ["Whole", Infinity, 0],
  };
  const buttons = Object.values(moves).map(([text, scale, shift]) => {
    const button = make("button", { type: "button" }, text);
    button.addEventListener("click", () => move(scale, shift));
    return button;
  });
  const bar = make("p", { className: "buttons" }, ...buttons);
  $("figure", section).before(bar);
  section.addEventListener("keydown", (event) => {
    const found = moves[event.key];
    if (!found || isBrowsers(event)) return;
    event.preventDefault();
    move(found[1], found[2]);
  });
  for (const svg of $$("svg", section)) {
    svg.addEventListener("click", (event) => {
      const { left, width } = svg.getBoundingClientRect();
      const [from, to] = window_();
      move(0.5, 0, from + ((event.clientX - left) / width) * (to - from));
    });
  }
  return () => {
    const [from, to] = window_();
    if (to - from < whole) unfold(section);
    for (const svg of $$("svg", section)) svg.setAttribute("viewBox", `${from} 0 ${to - from} 48`);
  };
}

const parts = [
  ...$$(".tools").map(prepareTable),
  ...$$(".icicle").map(prepareIcicle),
  ...$$(".timelines").map(prepareTimeline),
  showDrawer,
];

function show() {
  const state = readState();
  for (const part of parts) part(state);
  const place = document.getElementById(decoded(location.hash));
  for (let up = place?.closest("details"); up; up = up.parentElement.closest("details")) up.open = true;
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  const box = event.target.closest("[data-operator]");
  if (event.ctrlKey || event.metaKey || event.shiftKey || !(link || box)) return;
  const hash = box?.dataset.operator ?? decoded(link.hash);
  const [, icicle] = /^icicle=(.*)$/.exec(hash) ?? [];
  if (icicle === undefined && !/^r\d+-op-\d+$/.test(hash)) return;
  event.preventDefault();
  choose(icicle ? { icicle: icicle.endsWith("-0") ? null : icicle } : { operator: hash });
});
addEventListener("hashchange", show);
addEventListener("popstate", show);
narrow.addEventListener("change", show);
document.documentElement.classList.add("scripted");
show();

"use strict";

// A served page filters on the server; an exported page, which has no server, filters itself.

function chosenFilters(form) {
  const query = new URLSearchParams(location.search || location.hash.slice(1));
  const filters = {};
  for (const field of form.elements) {
    if (!field.name || "subject" in field.dataset || !query.get(field.name)) continue;
    const value = query.get(field.name);
    if (field.options && ![...field.options].some((option) => option.value === value)) continue;
    field.value = value;
    filters[field.name] = value;
  }
  return filters;
}

function passes(row, filters) {
  const { find = "", ...exact } = filters;
  const facts = Object.entries(row.dataset).filter(([name]) => name !== "row");
  const known = facts.map(([, value]) => value).join(" ").toLowerCase();
  return find.toLowerCase().split(/\s+/).every((word) => known.includes(word)) &&
    Object.entries(exact).every(
      ([name, value]) => !(name in row.dataset) || row.dataset[name] === value);
}

function hide(element, isHidden) {
  element.toggleAttribute("hidden", isHidden);
}

function filterRows(filters) {
  const rows = document.querySelectorAll("[data-row]");
  for (const row of rows) hide(row, !passes(row, filters));
  for (const group of document.querySelectorAll("[data-group]")) {
    hide(group, !group.querySelector("tr[data-row]:not([hidden])"));
  }
  const count = document.getElementById("count");
  if (!count) return;
  const shown = document.querySelectorAll(`${count.dataset.counted}:not([hidden])`).length;
  count.textContent = `${shown} ${count.dataset.noun}${shown === 1 ? "" : "s"}`;
  hide(document.getElementById("nothing"), shown > 0);
}

function redrawTrend(filters) {
  const place = (element) =>
    filters.axis === "commits" ? element.dataset.order : element.dataset.time;
  for (const point of document.querySelectorAll(".trend .point")) {
    point.setAttribute("transform", `translate(${place(point)},${point.dataset.y})`);
  }
  for (const mark of document.querySelectorAll("[data-change]")) {
    mark.setAttribute("x1", place(mark));
    mark.setAttribute("x2", place(mark));
    hide(mark, "branch" in filters || !passes(mark, filters));
  }
  for (const band of document.querySelectorAll("[data-band]")) {
    const [begin, end] = place(band).split(" ");
    band.setAttribute("d", `M${begin} 0H${end}V${band.dataset.floor}H${begin}Z`);
    hide(band, "branch" in filters || !passes(band, filters));
  }
  for (const series of document.querySelectorAll(".trend .series")) {
    const points = [...series.querySelectorAll(".point:not([hidden])")].filter(
      (point) => point.querySelector(".dot"));
    const path = points.map(
      (point, i) => `${i ? "L" : "M"}${place(point)} ${point.dataset.y}`).join("");
    series.querySelector("path.line").setAttribute("d", path);
  }
  const note = document.getElementById("changes-note");
  if (!note) return;
  hide(note, !("branch" in filters));
  hide(document.getElementById("changes-card"), "branch" in filters);
}

function openFiltered(event) {
  event.preventDefault();
  const form = event.target;
  let file = form.getAttribute("action");
  const query = new URLSearchParams();
  for (const field of form.elements) {
    if (!field.name) continue;
    if ("subject" in field.dataset) {
      const word = (field.selectedOptions ? field.selectedOptions[0] : field).dataset.word;
      file = file.replace(`{${field.name}}`, word);
    } else if (field.value) {
      query.set(field.name, field.value);
    }
  }
  const text = query.toString();
  location.assign(text ? `${file}?${text}` : file);
}

const form = document.querySelector("form.filters");
if (document.body.dataset.site === "exported" && form) {
  const filters = chosenFilters(form);
  filterRows(filters);
  redrawTrend(filters);
  form.addEventListener("submit", openFiltered);
}
if (document.body.dataset.site === "served") {
  // Filters that are not set are left out of the address.
  document.addEventListener("formdata", (event) => {
    for (const [name, value] of [...event.formData]) if (!value) event.formData.delete(name);
  });
}

// Tables sort by the headings, in the page: what is shown is what is sorted.
function sortKey(row, column) {
  const cell = row.cells[column];
  if (!cell) return null;
  if (cell.dataset.sort) return Number(cell.dataset.sort);
  const text = cell.innerText.trim();
  const share = /^(?:✕ )?([+−-]?[\d.,]+) ?[%×]/.exec(text);
  if (share) return Number(share[1].replace("−", "-").replace(/,/g, ""));
  return ["", "–", "not run"].includes(text) ? null : text;
}

function compareKeys(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return one.localeCompare(other, "en", { numeric: true });
}

function sortTable(table, column) {
  const heading = table.tHead.rows[0].cells[column];
  const rows = [...table.tBodies[0].rows].map((row) => [sortKey(row, column), row]);
  // Among figures a text, such as why there is none, is no value.
  const isNumeric = rows.some(([key]) => typeof key === "number");
  const isKnown = (key) => (isNumeric ? typeof key === "number" : key !== null);
  const known = rows.filter(([key]) => isKnown(key));
  const falls = heading.getAttribute("aria-sort") === "ascending";
  for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", falls ? "descending" : "ascending");
  known.sort(([one], [other]) => (falls ? -1 : 1) * compareKeys(one, other));
  // What has no value is last, whichever way.
  const unknown = rows.filter(([key]) => !isKnown(key));
  table.tBodies[0].append(...[...known, ...unknown].map(([, row]) => row));
}

for (const table of document.querySelectorAll(".scroll table")) {
  if (!table.tHead) continue;
  const headings = [...table.tHead.rows[0].cells];
  const names = headings.map((heading) => heading.textContent);
  const rows = [...table.tBodies[0].rows];
  for (const row of rows) {
    [...row.cells].forEach((cell, i) => { cell.dataset.label = names[i]; });
  }
  if (table.classList.contains("wide")) table.classList.add("flow");
  if (rows.length < 2) continue;
  headings.forEach((heading, i) => {
    if (names[i] === "Bar") return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sortTable(table, i));
    heading.append(button);
  });
}

// The brush of a trend: two sliders or a drag choose a part; the address keeps it.
const chart = document.querySelector("svg.trend");
if (chart) {
  const [left, top, whole, height] = chart.getAttribute("viewBox").split(" ").map(Number);
  const [from, to] = ["brush-from", "brush-to"].map((id) => document.getElementById(id));
  const ends = document.querySelectorAll(".ends span");
  const first = [...ends].map((end) => end.textContent);
  const points = [...chart.querySelectorAll(".point[data-when]")];
  const placeOf = (point) => Number(/\(([-\d.]+),/.exec(point.getAttribute("transform"))[1]);

  const draw = () => {
    const [begin, end] = [Number(from.value), Number(to.value)];
    const isWhole = begin <= 0 && end >= 1000;
    const box = isWhole ? [left, top, whole, height] : [begin, top, end - begin, height];
    chart.setAttribute("viewBox", box.join(" "));
    chart.classList.toggle("zoomed", !isWhole);
    const shown = points.filter((point) => !point.hasAttribute("hidden") &&
      placeOf(point) >= begin && placeOf(point) <= end);
    const when = shown.map((point) => point.dataset.when).sort();
    const words = isWhole || !when.length ? first : [when[0], when.at(-1)];
    ends.forEach((each, i) => { each.textContent = words[i]; });
    document.getElementById("brush-said").textContent =
      isWhole ? "" : `${shown.length} of ${points.length} runs`;
    const state = isWhole ? "" : `#x=${begin}-${end}`;
    history.replaceState(null, "", `${location.pathname}${location.search}${state}`);
  };

  const choose = (begin, end) => {
    from.value = Math.max(0, Math.min(begin, end, 990));
    to.value = Math.min(1000, Math.max(begin, end, Number(from.value) + 10));
    draw();
  };
  from.addEventListener("input", () => choose(Number(from.value), Math.max(Number(to.value), Number(from.value) + 10)));
  to.addEventListener("input", () => choose(Math.min(Number(from.value), Number(to.value) - 10), Number(to.value)));
  document.getElementById("brush-all").addEventListener("click", () => choose(0, 1000));

  const at = (event) => {
    const box = chart.getBoundingClientRect();
    const [x, , width] = chart.getAttribute("viewBox").split(" ").map(Number);
    return x + (event.clientX - box.left) / box.width * width;
  };
  let begun = null;
  const mark = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  mark.setAttribute("class", "brushed");
  chart.addEventListener("dragstart", (event) => event.preventDefault());
  chart.addEventListener("pointerdown", (event) => {
    if (event.button === 0) begun = at(event);
  });
  window.addEventListener("pointermove", (event) => {
    if (begun === null) return;
    const [low, high] = [begun, at(event)].sort((one, other) => one - other);
    for (const [name, value] of Object.entries({ x: low, y: 0, width: high - low, height })) {
      mark.setAttribute(name, value);
    }
    chart.append(mark);
  });
  window.addEventListener("pointerup", (event) => {
    mark.remove();
    const end = at(event);
    if (begun !== null && Math.abs(end - begun) > 10) {
      choose(Math.round(begun), Math.round(end));
      // The end of a drag is no click on the point below it.
      const stop = (click) => click.preventDefault();
      chart.addEventListener("click", stop, true);
      setTimeout(() => chart.removeEventListener("click", stop, true), 0);
    }
    begun = null;
  });
  document.getElementById("brush").hidden = false;
  const kept = /^#x=(\d+)-(\d+)$/.exec(location.hash);
  if (kept) choose(Number(kept[1]), Number(kept[2]));
}

"use strict";

// A served page filters on the server; an exported page, which has no server, filters itself.

function chosenFilters(form) {
  const query = new URLSearchParams(location.search || location.hash.slice(1));
  const filters = {};
  for (const field of form.elements) {
    if (!field.name || "subject" in field.dataset || !query.get(field.name)) continue;
    const value = query.get(field.name);
    if (![...field.options].some((option) => option.value === value)) continue;
    field.value = value;
    filters[field.name] = value;
  }
  return filters;
}

function passes(row, filters) {
  return Object.entries(filters).every(
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

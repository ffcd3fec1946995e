"use strict";

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

function sortBy(table, heading) {
  const column = heading.cellIndex;
  const first = heading.dataset.first === "descending" ? "descending" : "ascending";
  const other = first === "ascending" ? "descending" : "ascending";
  const order = heading.getAttribute("aria-sort") === first ? other : first;
  for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", order);
  const direction = order === "ascending" ? 1 : -1;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  rows.sort((a, b) =>
    compareValues(sortValue(a.cells[column]), sortValue(b.cells[column]), direction));
  body.append(...rows);
}

function filterRows(input, table, counter) {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
    shown += row.hidden ? 0 : 1;
  }
  counter.textContent = `${shown} of ${table.tBodies[0].rows.length} operators`;
}

for (const table of document.querySelectorAll("table.sortable")) {
  for (const heading of table.tHead.rows[0].cells) {
    heading.querySelector("button")?.addEventListener("click", () => sortBy(table, heading));
  }
}
for (const input of document.querySelectorAll("input[type=search]")) {
  const table = document.getElementById(input.dataset.table);
  const counter = document.getElementById(input.dataset.counter);
  input.addEventListener("input", () => filterRows(input, table, counter));
}

"use strict";
const boxes = [...document.querySelectorAll("#flames button")].map((box) => {
  const left = parseFloat(box.style.left);
  return { box, left, right: left + parseFloat(box.style.width) };
});
const chosen = document.getElementById("chosen");

// Shows one box as wide as the picture: what it is part of fills the width too, its neighbours go.
function enlarge(chosenBox) {
  const scale = 100 / (chosenBox.right - chosenBox.left);
  for (const { box, left, right } of boxes) {
    const start = Math.max(left, chosenBox.left);
    const end = Math.min(right, chosenBox.right);
    // Places are rounded to thousandths of a percent.
    box.hidden = end - start < 0.0025;
    box.style.left = `${(start - chosenBox.left) * scale}%`;
    box.style.width = `${(end - start) * scale}%`;
  }
  chosen.textContent = chosenBox.box.title;
}

for (const each of boxes) {
  each.box.addEventListener("click", () => enlarge(each));
}

// Reads a value off the latency curves where the pointer is. The page is complete without it.
(() => {
  "use strict";
  const units = [["s", 1e9], ["ms", 1e6], ["µs", 1e3]];
  const time = (ns) => {
    const [unit, worth] = units.find(([, w]) => ns >= w * 0.9995) || ["ns", 1];
    const value = ns / worth;
    return (unit === "ns" || value >= 99.95 ? value.toFixed(0) : value.toPrecision(3)) + " " + unit;
  };
  const heightAt = (points, x) => {
    let before = null;
    for (const point of points) {
      if (point.x >= x) {
        if (!before) return point.x - x < 1 ? point.y : null;
        const share = point.x > before.x ? (x - before.x) / (point.x - before.x) : 1;
        return before.y + share * (point.y - before.y);
      }
      before = point;
    }
    return null;
  };
  const element = (tag, name, text) => {
    const made = document.createElement(tag);
    made.className = name;
    made.textContent = text;
    return made;
  };
  const tip = element("div", "tip", "");
  tip.hidden = true;
  document.body.append(tip);

  const show = (svg, event) => {
    const box = svg.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const [yLow, yHigh] = [Number(svg.dataset.yLow), Number(svg.dataset.yHigh)];
    const rows = [];
    for (const line of svg.querySelectorAll("polyline[data-name]")) {
      const y = heightAt(line.points, share * 1000);
      if (y !== null) {
        rows.push([yLow * Math.pow(yHigh / yLow, 1 - y / 1000), line]);
      }
    }
    rows.sort((a, b) => b[0] - a[0]);
    const rarity = Math.pow(Number(svg.dataset.xHigh), share);
    const digits = Math.max(0, Math.ceil(Math.log10(rarity)) - 1);
    tip.replaceChildren(element("div", "at", ((1 - 1 / rarity) * 100).toFixed(digits) + " %"));
    for (const [ns, line] of rows) {
      const row = element("div", "row " + line.getAttribute("class"), "");
      row.append(element("i", "", ""), element("span", "", line.dataset.name),
        element("b", "", time(ns)));
      tip.append(row);
    }
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8);
    tip.style.transform = `translate(${Math.max(8, left)}px, ${Math.max(8, top)}px)`;
  };
  for (const svg of document.querySelectorAll("svg.lines")) {
    svg.addEventListener("pointermove", (event) => show(svg, event));
    svg.addEventListener("pointerdown", (event) => show(svg, event));
    svg.addEventListener("pointerleave", () => { tip.hidden = true; });
  }
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
})();

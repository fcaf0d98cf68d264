"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const run = data.run;
  const kernels = data.kernels;
  const paperWidth = 680;
  let isPrinting = false;

  const rounded = (value, digits = 4) => (
    value === null || value === undefined ? "-" : Number(value.toPrecision(digits)).toLocaleString("en"));
  const better = (a, b) => (run.moreIsBetter ? a > b : a < b);
  const best = (values) => values.reduce((a, b) => (better(b, a) ? b : a));

  // ---- The page's own elements ----

  function make(tag, properties = {}, children = []) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  function fillTable(figure, columns, rows) {
    const cell = (value) => make("td", {
      textContent: typeof value === "number" ? rounded(value) : value ?? "-",
      className: typeof value === "number" ? "number" : "",
    });
    figure.querySelector("details .scroll").replaceChildren(make("table", {}, [
      make("thead", {}, [make("tr", {}, columns.map((name) => make("th", { textContent: name, scope: "col", className: "text" })))]),
      make("tbody", {}, rows.map((row) => make("tr", {}, row.map(cell)))),
    ]));
  }

  // A control of a figure, made once; its choice is kept when the figure is drawn again.
  function select(figure, name, label, options, chosen) {
    let box = figure.querySelector(`select[name="${name}"]`);
    if (!box) {
      box = make("select", { name });
      box.append(...options.map((text, place) => make("option", { textContent: text, value: place })));
      box.value = String(Math.max(0, options.indexOf(chosen)));
      box.addEventListener("change", () => draw(figure));
      figure.querySelector(".controls").append(make("label", {}, [`${label} `, box]));
    }
    return Number(box.value);
  }

  // Shape and colour of each role; the words stand in the legend below the plot.
  function legend(figure, entries) {
    figure.querySelector(".legend").replaceChildren(...entries.map(([role, text, shape]) => make("span", {}, [
      make("i", { className: `swatch ${role} ${shape}`, ariaHidden: "true" }), ` ${text}`])));
  }

  // ---- Drawing ----

  const widthOf = (figure) => (isPrinting ? paperWidth : Math.max(280, figure.querySelector(".drawing").clientWidth));
  const isNarrow = (figure) => widthOf(figure) < 600;
  const tip = (marks, channels) => Plot.tip(marks, Plot.pointer({
    ...channels, fill: "var(--raised)", stroke: "var(--faint)", textPadding: 6, lineWidth: 30 }));
  const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}\u2026` : text);
  const axis = (label, more = {}) => ({ label, labelAnchor: "center", labelArrow: "none", labelOffset: 42, ...more });
  const grid = { stroke: "var(--line)", strokeOpacity: 1 };

  // ``alt`` says what is seen; the table below has the figures.
  function show(figure, alt, options) {
    const holder = figure.querySelector(".drawing");
    const drawn = Plot.plot({
      width: widthOf(figure),
      marginBottom: 48,
      style: { background: "none", color: "var(--ink)", fontSize: "13px", fontFamily: "inherit", overflow: "visible" },
      ...options,
    });
    drawn.setAttribute("role", "img");
    drawn.setAttribute("aria-label", `${alt} The table below has the figures.`);
    // Dozens of shapes without names: the label says it all.
    drawn.querySelectorAll(":scope > g").forEach((part) => part.setAttribute("aria-hidden", "true"));
    holder.replaceChildren(drawn);
  }

  function nothing(figure, text) {
    fillTable(figure, [], []);
    figure.querySelector(".drawing").replaceChildren(make("p", { textContent: text, className: "note" }));
  }

  // ---- Plots of a run ----

  let kept = run ? run.merits.map((_, i) => i) : [];
  const valueOf = (parameter, i) => parameter.values[parameter.codes[i]];

  function describe(i) {
    const values = run.parameters.map((p) => `${p.name}=${valueOf(p, i)}`);
    return `trial ${run.numbers[i]}: ${rounded(run.merits[i])} ${run.unit}\n${shortened(values.join(" "), 400)}`;
  }

  const baselineEntry = () => (run.baseline === null ? [] : [["baseline", "cuBLAS in the finals", "line dashed"]]);

  function history(figure) {
    const seconds = run.isRecorded ? "seconds of the replay" : "seconds since the run began";
    const isTime = select(figure, "along", "Along", ["trials", seconds], "trials");
    const along = isTime ? run.seconds : run.numbers;
    const steps = [];
    for (const i of kept) {
      if (!steps.length || better(run.merits[i], run.merits[steps[steps.length - 1]])) steps.push(i);
    }
    fillTable(figure, ["trial", "seconds", `best so far, ${run.unit}`],
      steps.map((i) => [run.numbers[i], run.seconds[i], run.merits[i]]));
    if (!steps.length) return nothing(figure, "No config that ran matches.");
    const last = steps[steps.length - 1];
    const line = steps.map((i) => [along[i], run.merits[i]]);
    line.push([kept.reduce((most, i) => Math.max(most, along[i]), 0), run.merits[last]]);
    legend(figure, [["other", "one config", "dot"], ["own", "best so far", "line"], ...baselineEntry()]);
    return show(figure, `${kept.length} configs; the best so far rises in ${steps.length} steps to ${
      rounded(run.merits[last])} ${run.unit} at trial ${run.numbers[last]}.`, {
      height: isNarrow(figure) ? 320 : 400,
      marginLeft: 60,
      x: axis(isTime ? seconds : "trial"),
      y: axis(run.unit, { nice: true, labelOffset: 50 }),
      marks: [
        Plot.gridY(grid),
        Plot.dot(kept, {
          x: (i) => along[i], y: (i) => run.merits[i], r: kept.length > 3000 ? 1.5 : 3, fill: "var(--other)" }),
        Plot.line(line, { curve: "step-after", stroke: "var(--own)", strokeWidth: 3 }),
        run.baseline === null ? null : Plot.ruleY([run.baseline], {
          stroke: "var(--baseline)", strokeWidth: 2, strokeDasharray: "7 4" }),
        tip(kept, { x: (i) => along[i], y: (i) => run.merits[i], title: describe }),
      ],
    });
  }

  function distribution(figure) {
    const merits = kept.map((i) => run.merits[i]);
    const sorted = [...merits].sort((a, b) => (better(a, b) ? -1 : 1));
    const at = (share) => sorted[Math.round(share * (sorted.length - 1))];
    fillTable(figure, ["configs", run.unit], sorted.length
      ? [["best", at(0)], ["best tenth from", at(0.1)], ["best quarter from", at(0.25)],
        ["median", at(0.5)], ["worst quarter from", at(0.75)], ["worst", at(1)]]
      : []);
    if (!sorted.length) return nothing(figure, "No config that ran matches.");
    legend(figure, [["other", "configs", "bar"], ["own", "the best", "line"], ["marked", "the median", "line dotted"],
      ...baselineEntry()]);
    return show(figure, `${sorted.length} configs between ${rounded(at(1))} and ${rounded(at(0))} ${
      run.unit}, half of them worse than ${rounded(at(0.5))}.`, {
      height: isNarrow(figure) ? 280 : 340,
      marginLeft: 60,
      x: axis(run.unit, { nice: true }),
      y: axis("configs", { labelOffset: 50 }),
      marks: [
        Plot.gridY(grid),
        Plot.rectY(merits, Plot.binX({ y: "count" }, { fill: "var(--other)", inset: 0.5, thresholds: 40, tip: true })),
        Plot.ruleX([at(0)], { stroke: "var(--own)", strokeWidth: 2 }),
        Plot.ruleX([at(0.5)], { stroke: "var(--marked)", strokeWidth: 2, strokeDasharray: "2 3" }),
        run.baseline === null ? null : Plot.ruleX([run.baseline], {
          stroke: "var(--baseline)", strokeWidth: 2, strokeDasharray: "7 4" }),
        Plot.ruleY([0], { stroke: "var(--faint)" }),
      ],
    });
  }

  function importance(figure) {
    const rows = run.importance;
    fillTable(figure, ["parameter", "share", "meaning"], rows.map(([name, share]) => [name, share, data.meanings[name] ?? null]));
    if (!rows.length) return nothing(figure, "Too few configs ran to tell.");
    return show(figure, `${rows.slice(0, 3).map(([name, share]) => `${name} ${Math.round(100 * share)} %`).join(", ")} lead ${rows.length} parameters.`, {
      height: 50 + 24 * rows.length,
      marginLeft: 150,
      marginRight: 45,
      x: axis("share", { tickFormat: (share) => `${Math.round(100 * share)} %` }),
      y: { label: null, domain: rows.map(([name]) => name), tickFormat: (name) => shortened(name, 20) },
      marks: [
        Plot.barX(rows, { x: "1", y: "0", fill: "var(--own)", title: ([name]) => data.meanings[name] ?? name, tip: true }),
        Plot.text(rows, { x: "1", y: "0", text: ([, share]) => `${Math.round(100 * share)} %`, textAnchor: "start", dx: 4 }),
      ],
    });
  }

  const names = run ? run.parameters.map((p) => p.name) : [];
  const important = run ? [...run.importance.map((row) => row[0]), ...names] : [];

  function parameter(figure) {
    const chosen = run.parameters[select(figure, "parameter", "Parameter", names, important[0])];
    if (!chosen) return nothing(figure, "No parameter varies.");
    figure.querySelector(".meaning").textContent = data.meanings[chosen.name] ?? "";
    const groups = chosen.values.map((_, code) => kept.filter((i) => chosen.codes[i] === code));
    const rows = chosen.values.map((value, code) => {
      const merits = groups[code].map((i) => run.merits[i]).sort((a, b) => a - b);
      return merits.length
        ? [String(value), merits.length, best(merits), merits[merits.length >> 1]]
        : [String(value), 0, null, null];
    });
    fillTable(figure, [chosen.name, "configs", `best, ${run.unit}`, `median, ${run.unit}`], rows);
    const ran = rows.filter((row) => row[1]);
    if (!ran.length) return nothing(figure, "No config that ran matches.");
    const leader = ran.reduce((a, b) => (better(b[2], a[2]) ? b : a));
    const text = (i) => String(valueOf(chosen, i));
    legend(figure, [["other", "one config", "bar"], ["own", "the middle half and the median", "box"]]);
    return show(figure, `Of ${ran.length} values of ${chosen.name}, ${leader[0]} has the best config with ${rounded(leader[2])} ${run.unit}.`, {
      height: 70 + 44 * ran.length,
      marginLeft: isNarrow(figure) ? 75 : 150,
      x: axis(run.unit, { nice: true, tickSpacing: 90 }),
      y: { label: chosen.name, labelArrow: "none", domain: ran.map((row) => row[0]), tickFormat: (name) => shortened(name, isNarrow(figure) ? 9 : 20) },
      marks: [
        Plot.gridX(grid),
        Plot.tickX(kept, { x: (i) => run.merits[i], y: text, stroke: "var(--other)", insetTop: 24, insetBottom: 2 }),
        Plot.boxX(kept, { x: (i) => run.merits[i], y: text, fill: "var(--own)", fillOpacity: 0.35, stroke: "var(--own)", r: 0, insetTop: 2, insetBottom: 18, dy: 0 }),
        tip(kept, { x: (i) => run.merits[i], y: text, title: describe }),
      ],
    });
  }

  const scheme = "cividis";
  // A cell's colour is bright from about the middle of the scale on: black on bright, white on dark.
  function inkOn(value, [low, high], isReversed) {
    const share = high > low ? (value - low) / (high - low) : 0.5;
    return (isReversed ? 1 - share : share) > 0.5 ? "black" : "white";
  }

  function matrix(figure, alt, cells, { unit, isReversed = false, digits = 3, title, ...more }) {
    const range = d3.extent(cells, (cell) => cell.value);
    const column = (widthOf(figure) - (more.marginLeft ?? 60)) / new Set(cells.map((cell) => cell.x)).size;
    return show(figure, alt, {
      padding: 0.04,
      color: { scheme, type: "linear", domain: range, reverse: isReversed, legend: false, label: unit },
      ...more,
      marks: [
        Plot.cell(cells, { x: "x", y: "y", fill: "value", title, tip: Boolean(title) }),
        column < 30 ? null : Plot.text(cells, {
          x: "x", y: "y", text: (cell) => rounded(cell.value, digits), fill: (cell) => inkOn(cell.value, range, isReversed), fontSize: column < 48 ? 10 : 13 }),
      ],
    });
  }

  function heatmap(figure) {
    const [across, up] = [["x", "Across", 0], ["y", "Up", 1]].map(
      ([name, label, place]) => run.parameters[select(figure, name, label, names, important[place])]);
    if (!across || !up) return nothing(figure, "Too few parameters vary.");
    const found = up.values.map(() => across.values.map(() => null));
    for (const i of kept) {
      const row = found[up.codes[i]];
      const column = across.codes[i];
      if (row[column] === null || better(run.merits[i], row[column])) row[column] = run.merits[i];
    }
    fillTable(figure, [`${up.name} / ${across.name}`, ...across.values.map(String)],
      found.map((row, place) => [String(up.values[place]), ...row]));
    const cells = found.flatMap((row, r) => row.map((value, c) => (
      { x: String(across.values[c]), y: String(up.values[r]), value }))).filter((cell) => cell.value !== null);
    if (!cells.length) return nothing(figure, "No config that ran matches.");
    const top = cells.reduce((a, b) => (better(b.value, a.value) ? b : a));
    return matrix(figure, `The best of ${cells.length} cells is ${across.name}=${top.x}, ${up.name}=${top.y} with ${rounded(top.value)} ${run.unit}.`, cells, {
      x: axis(across.name, { type: "band", domain: across.values.map(String) }),
      y: { type: "band", domain: [...up.values].reverse().map(String), label: up.name, labelArrow: "none" },
      unit: run.unit,
      isReversed: !run.moreIsBetter,
      height: 70 + 34 * up.values.length,
      marginLeft: 80,
      title: (cell) => `${across.name}=${cell.x}, ${up.name}=${cell.y}: ${rounded(cell.value)} ${run.unit}`,
    });
  }

  // ---- Plots of kernels side by side ----

  const kernelNames = kernels ? [...new Set(kernels.timed.map((one) => one.kernel))] : [];
  const roles = {
    own: ["a kernel of your own", "circle"],
    baseline: ["the baseline", "square"],
    library: ["another library", "triangle"],
    other: ["a rung of the ladder", "diamond2"],
  };
  const roleEntries = (shape) => Object.entries(roles)
    .filter(([role]) => kernels.timed.some((one) => one.role === role))
    .map(([role, [text, symbol]]) => [role, text, shape ?? symbol]);
  const colourOf = (one) => `var(--${one.role})`;
  const measures = { "percent of the roof": "roof", "percent of cuBLAS": "percent", "GFLOP/s": "gflops" };

  // Those of the measures that are known.
  function measure(figure) {
    const known = Object.keys(measures).filter((name) => kernels.timed.some((one) => one[measures[name]] !== null));
    const name = known[select(figure, "measure", "Show", known, known[0])];
    return [name, measures[name]];
  }

  // A panel a kernel, all others as thin lines behind it: no two lines need be told apart by a mark.
  function sizes(figure) {
    const [label, key] = measure(figure);
    const at = (kernel, size) => kernels.timed.find((one) => one.kernel === kernel && one.size === size);
    fillTable(figure, ["kernel", ...kernels.sizes],
      kernelNames.map((kernel) => [kernel, ...kernels.sizes.map((size) => at(kernel, size)?.[key] ?? null)]));
    const timed = kernels.timed.filter((one) => one[key] !== null);
    const columns = Math.max(1, Math.min(kernelNames.length, Math.floor(widthOf(figure) / 170)));
    const panel = (one) => kernelNames.indexOf(one.kernel);
    const values = timed.map((one) => one[key]);
    // A share has an end; speeds of three decades need a scale that has none.
    const isWide = key === "gflops" && Math.max(...values) > 10 * Math.min(...values);
    const place = (one) => ({ fx: panel(one) % columns, fy: Math.floor(panel(one) / columns) });
    const points = timed.map((one) => ({ ...one, ...place(one), value: one[key] }));
    const behind = kernelNames.flatMap((_, number) => points
      .filter((one) => panel(one) !== number)
      .map((one) => ({ ...one, fx: number % columns, fy: Math.floor(number / columns) })));
    const heads = kernelNames.map((kernel, number) => ({ kernel, fx: number % columns, fy: Math.floor(number / columns) }));
    const rows = Math.ceil(kernelNames.length / columns);
    const [least, most] = d3.extent(values);
    const ticks = isWide
      ? d3.range(Math.ceil(Math.log10(least)), Math.floor(Math.log10(most)) + 1).map((power) => 10 ** power)
      : d3.ticks(0, most, 3);
    const leader = points.reduce((a, b) => (b.value > a.value ? b : a));
    legend(figure, [...roleEntries(), ["line-only", "all other kernels", "line"]]);
    return show(figure, `${kernelNames.length} panels; the highest value is ${rounded(leader.value)} ${label} of ${leader.kernel} at ${leader.size}.`, {
      height: 80 + (isPrinting ? 110 : 150) * rows,
      marginLeft: 50,
      marginBottom: 70,
      fx: { axis: null, padding: 0.12 },
      fy: { axis: null, padding: 0.2 },
      x: { type: "point", domain: kernels.sizes, label: null, tickRotate: -45, padding: 0.3 },
      y: axis(label, { type: isWide ? "log" : "linear", domain: [isWide ? least : 0, most], ticks, tickFormat: (v) => rounded(v, 3), nice: true }),
      marks: [
        Plot.gridY(ticks, grid),
        Plot.line(behind, { x: "size", y: "value", z: "kernel", fx: "fx", fy: "fy", stroke: "var(--other)", strokeWidth: 0.75, strokeOpacity: 0.6 }),
        Plot.line(points, { x: "size", y: "value", z: "kernel", fx: "fx", fy: "fy", stroke: colourOf, strokeWidth: 2.5 }),
        Plot.dot(points, { x: "size", y: "value", fx: "fx", fy: "fy", fill: colourOf, r: 3, symbol: (one) => roles[one.role][1] }),
        Plot.text(heads, { fx: "fx", fy: "fy", text: (one) => shortened(one.kernel, Math.floor((widthOf(figure) - 70) / columns / 7.6)), frameAnchor: "top-left", dy: -14, fontWeight: 600, fontSize: 12 }),
        tip(points, { x: "size", y: "value", fx: "fx", fy: "fy", title: (one) => `${one.kernel}, ${one.size}: ${rounded(one.value)} ${label}` }),
      ],
    });
  }

  // The same as numbers: no mark hides another.
  function shares(figure) {
    const [label, key] = measure(figure);
    const timed = kernels.timed.filter((one) => one[key] !== null);
    fillTable(figure, ["kernel", "size", label], timed.map((one) => [one.kernel, one.size, one[key]]));
    const cells = timed.map((one) => ({ x: one.size, y: one.kernel, value: one[key] }));
    const leader = cells.reduce((a, b) => (b.value > a.value ? b : a));
    const isLong = isNarrow(figure);
    return matrix(figure, `A number for each of ${kernelNames.length} kernels and ${kernels.sizes.length} sizes, the highest ${rounded(leader.value)} of ${leader.y} at ${leader.x}.`, cells, {
      unit: label,
      height: 75 + 26 * kernelNames.length,
      marginLeft: isLong ? 130 : 235,
      marginTop: 60,
      marginBottom: 10,
      x: { type: "band", axis: "top", domain: kernels.sizes, label: null, tickRotate: kernels.sizes.length > 4 ? -45 : 0 },
      y: { type: "band", domain: kernelNames, label: null, tickFormat: (name) => shortened(name, isLong ? 17 : 33) },
      title: (cell) => `${cell.y}, ${cell.x}: ${rounded(cell.value)} ${label}`,
    });
  }

  function ladder(figure) {
    const last = kernels.sizes[kernels.sizes.length - 1];
    const size = kernels.sizes[select(figure, "size", "Size", kernels.sizes, last)];
    const bars = kernels.timed.filter((one) => one.size === size);
    fillTable(figure, ["kernel", "time us", "GFLOP/s", "% of cuBLAS", "% of roof"],
      bars.map((one) => [one.kernel, one.time_us, one.gflops, one.percent, one.roof]));
    // As long as the others need: tensor cores would flatten the ladder.
    const baseline = bars.find((one) => one.role === "baseline");
    const most = Math.max(...bars.map((one) => one.gflops).filter(
      (gflops) => !baseline || gflops < 1.6 * baseline.gflops));
    const shown = bars.map((one) => ({ ...one, length: Math.min(one.gflops, most) }));
    const words = (one) => [rounded(one.gflops, 3), one.percent === null ? "" : `${rounded(one.percent, 3)} %`,
      one.gflops > most ? "(cut)" : ""].filter(Boolean).join(" \u00b7 ");
    const leader = bars.reduce((a, b) => (b.gflops > a.gflops ? b : a));
    legend(figure, roleEntries("bar"));
    const isLong = isNarrow(figure);
    return show(figure, `${bars.length} bars at ${size}; the longest is ${leader.kernel} with ${rounded(leader.gflops)} GFLOP/s.`, {
      height: 60 + 26 * bars.length,
      marginLeft: isLong ? 120 : 235,
      marginRight: isLong ? 125 : 160,
      x: axis(`GFLOP/s${baseline ? " \u00b7 % of cuBLAS" : ""}`, { tickSpacing: 90 }),
      y: { label: null, domain: bars.map((one) => one.kernel), tickFormat: (name) => shortened(name, isLong ? 16 : 33) },
      marks: [
        Plot.gridX(grid),
        Plot.barX(shown, { x: "length", y: "kernel", fill: colourOf, insetTop: 2, insetBottom: 2 }),
        Plot.text(shown, { x: "length", y: "kernel", text: words, textAnchor: "start", dx: 5, fontSize: isLong ? 11 : 13 }),
        tip(shown, { x: "length", y: "kernel", title: (one) => `${one.kernel}: ${rounded(one.time_us)} us, ${rounded(one.gflops)} GFLOP/s` }),
      ],
    });
  }

  // The fastest at each place: one name a column of points.
  const fastest = (timed) => [...d3.group(timed, (one) => one.intensity).values()].map(
    (each) => each.reduce((a, b) => (b.gflops > a.gflops ? b : a)));

  function roofline(figure) {
    fillTable(figure, ["kernel", "size", "FLOP per byte", "TFLOP/s", "% of roof"],
      kernels.timed.map((one) => [one.kernel, one.size, one.intensity, one.gflops / 1000, one.roof]));
    const intensities = kernels.timed.map((one) => one.intensity);
    const low = Math.min(1, ...intensities.map((x) => x / 2));
    const high = Math.max(1000, ...intensities.map((x) => 2 * x));
    const most = Math.max(0, ...kernels.ceilings.map((one) => one[1]));
    const steepest = Math.max(...kernels.slopes.map((one) => one[1]));
    const bottom = Math.min(...kernels.timed.map((one) => one.gflops / 1000)) / 8;
    // Each name stands at a place of its own along its line.
    const slopes = kernels.slopes.map(([name, speed], place) => {
      const [x1, x2] = [Math.max(low, bottom / speed), most / speed];
      return { name: `${name}, ${rounded(1000 * speed)} GB/s`, x1, x2, speed, at: x1 * (x2 / x1) ** (0.12 + 0.27 * place) };
    });
    // A name stands above its line, or below where the line above is near.
    const ceilings = d3.sort(kernels.ceilings, (one) => -one[1]).map(([name, tflops], place, all) => ({
      name: `${name}, ${rounded(tflops)} TFLOP/s`, x1: tflops / steepest, x2: high, tflops,
      isBelow: place > 0 && all[place - 1][1] < 1.6 * tflops }));
    const isLong = isNarrow(figure);
    legend(figure, roleEntries());
    const leader = kernels.timed.reduce((a, b) => (b.gflops > a.gflops ? b : a));
    return show(figure, `${kernels.timed.length} points below ${ceilings.length} ceilings; the highest is ${leader.kernel} at ${leader.size} with ${rounded(leader.gflops / 1000)} TFLOP/s.`, {
      height: isLong ? 420 : 560,
      marginLeft: 60,
      marginRight: isLong ? 10 : 20,
      marginTop: 25,
      x: axis("FLOP per byte that must move", { type: "log", domain: [low, high], tickFormat: (v) => rounded(v), ticks: 5 }),
      y: axis("TFLOP/s", { type: "log", domain: [bottom, 2 * Math.max(most, leader.gflops / 1000)], tickFormat: (v) => rounded(v), ticks: 5, labelOffset: 55 }),
      marks: [
        Plot.link(slopes, { x1: "x1", x2: "x2", y1: (s) => s.x1 * s.speed, y2: (s) => s.x2 * s.speed, stroke: "var(--faint)", strokeWidth: 1.5 }),
        Plot.link(ceilings, { x1: "x1", x2: "x2", y1: "tflops", y2: "tflops", stroke: "var(--ink)", strokeWidth: 1.5 }),
        Plot.ruleX(new Set(intensities), { stroke: "var(--line)" }),
        ...[false, true].map((isBelow) => Plot.text(ceilings.filter((one) => one.isBelow === isBelow), {
          x: low, y: "tflops", text: "name", textAnchor: "start", dx: 6, dy: isBelow ? 9 : -9, fontSize: isLong ? 10 : 12, fill: "var(--ink)" })),
        Plot.text(slopes, { x: "at", y: (s) => s.at * s.speed, text: "name", textAnchor: "start", dx: 8, dy: 8, fontSize: isLong ? 10 : 12, stroke: "var(--ground)", strokeWidth: 4, fill: "var(--faint)" }),
        Plot.dot(kernels.timed, { x: "intensity", y: (one) => one.gflops / 1000, r: 4, fill: colourOf, symbol: (one) => roles[one.role][1], stroke: "var(--ground)", strokeWidth: 0.7 }),
        isLong ? null : Plot.text(fastest(kernels.timed), {
          x: "intensity", y: (one) => one.gflops / 1000, text: (one) => shortened(one.kernel, 14),
          dy: -12, fontSize: 11, stroke: "var(--ground)", strokeWidth: 4, fill: "var(--ink)" }),
        Plot.text(d3.groups(kernels.timed, (one) => one.intensity), {
          x: "0", y: bottom, text: ([, each]) => [...new Set(each.map((one) => one.size))].join(", "), rotate: -90, textAnchor: "start", dx: 5, fontSize: isLong ? 9 : 11, fill: "var(--faint)" }),
        tip(kernels.timed, { x: "intensity", y: (one) => one.gflops / 1000, title: (one) => `${one.kernel}, ${one.size}: ${rounded(one.gflops / 1000)} TFLOP/s${one.roof === null ? "" : `, ${rounded(one.roof, 3)} % of the roof`}` }),
      ],
    });
  }

  // ---- When what is drawn ----

  const painters = { history, distribution, importance, parameter, heatmap, sizes, shares, ladder, roofline };
  const figures = [...document.querySelectorAll("figure.plot")];
  const drawn = new Set();

  function draw(figure) {
    drawn.add(figure);
    painters[figure.dataset.plot](figure);
  }

  function drawAgain() {
    drawn.forEach(draw);
  }

  function applyFilter() {
    const boxes = [...document.querySelectorAll("#filter input")];
    const shut = run.parameters.map((_, place) => new Set(
      boxes.filter((box) => Number(box.name) === place && !box.checked).map((box) => Number(box.value))));
    kept = run.merits.map((_, i) => i).filter(
      (i) => run.parameters.every((p, place) => !shut[place].has(p.codes[i])));
    document.getElementById("matching").textContent =
      `${kept.length} of ${run.merits.length} configs that ran match`
      + (kept.length ? `; the best of them: ${rounded(best(kept.map((i) => run.merits[i])))} ${run.unit}` : "");
    drawAgain();
  }

  function term(name) {
    const meaning = data.meanings[name];
    return meaning ? make("button", { type: "button", className: "term", textContent: name, title: meaning }) : name;
  }

  function makeFilter() {
    document.querySelector("#filter .fields").append(...run.parameters.map((p, place) =>
      make("fieldset", {}, [
        make("legend", {}, [term(p.name)]),
        ...p.values.map((value, code) => {
          const box = make("input", { type: "checkbox", name: String(place), value: String(code), checked: true });
          box.addEventListener("change", applyFilter);
          return make("label", {}, [box, ` ${value}`]);
        }),
      ])));
    document.getElementById("reset").addEventListener("click", () => {
      document.querySelectorAll("#filter input").forEach((box) => { box.checked = true; });
      applyFilter();
    });
  }

  // ---- Meanings of parameters, and copying ----

  // A browser shows a title under a mouse only: fingers and keyboards get it here.
  const note = make("p", { id: "meaning", role: "status", hidden: true });
  document.body.append(note);
  function explainTerm(event) {
    const button = event.target.closest?.(".term");
    note.hidden = !button;
    if (!button) return;
    note.textContent = `${button.textContent}: ${button.title}`;
    const box = button.getBoundingClientRect();
    note.style.top = `${scrollY + box.bottom + 6}px`;
    note.style.left = `${Math.max(8, Math.min(box.left, innerWidth - Math.min(360, innerWidth - 16) - 8))}px`;
  }
  ["click", "focusin"].forEach((name) => addEventListener(name, explainTerm));
  addEventListener("keydown", (event) => { if (event.key === "Escape") note.hidden = true; });

  async function copy(button) {
    const text = document.getElementById(button.dataset.copies).textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // A file opened from a disk may not write to the clipboard in every browser.
      const box = make("textarea", { value: text });
      document.body.append(box);
      box.select();
      document.execCommand("copy");
      box.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }
  document.querySelectorAll("button[data-copies]").forEach(
    (button) => button.addEventListener("click", () => copy(button)));

  if (run) {
    makeFilter();
    applyFilter();
  }
  function start() {
    ["d3", "plot"].forEach((name) => document.head.append(
      make("script", { textContent: document.getElementById(name).textContent })));
    // Charts far down the page are drawn when they come near.
    const watcher = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) {
          watcher.unobserve(entry.target);
          draw(entry.target);
        }
      }
    }, { rootMargin: "300px" });
    figures.forEach((figure) => watcher.observe(figure));
    let width = innerWidth;
    addEventListener("resize", () => { if (innerWidth !== width && !isPrinting) { width = innerWidth; drawAgain(); } });
    addEventListener("beforeprint", () => { isPrinting = true; figures.forEach(draw); });
    addEventListener("afterprint", () => { isPrinting = false; drawAgain(); });
  }

  // After the first frame: the text is there at once, the plots follow.
  requestAnimationFrame(() => setTimeout(start));
})();

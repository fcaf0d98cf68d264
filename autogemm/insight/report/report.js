"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const run = data.run;
  const kernels = data.kernels;
  const manyPoints = 3000;
  const isNarrow = innerWidth < 640;
  const lineStyles = ["solid", "dash", "dot", "dashdot", "longdash"];
  const symbols = ["circle", "square-open", "diamond", "triangle-up-open", "triangle-down", "cross-open",
    "x", "star-open", "triangle-left", "triangle-right-open", "hexagon", "diamond-open"];
  // Readable on both grounds.
  const colours = ["#2f7fc1", "#e0701a", "#2c9c43", "#d6453d", "#8f6cc0", "#a4685a", "#cf62b0", "#7f8b12",
    "#119fb3", "#858585"];

  // Plotly reads a little HTML in its texts; names from files are text.
  const plain = (text) => String(text).replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);
  const rounded = (value, digits = 4) => (
    value === null || value === undefined ? "-" : Number(value.toPrecision(digits)).toString());
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const better = (a, b) => (run.moreIsBetter ? a > b : a < b);
  const best = (values) => values.reduce((a, b) => (better(b, a) ? b : a));
  const hasWebGL = () => Boolean(document.createElement("canvas").getContext("webgl"));

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

  // ---- Drawing ----

  function layout(x, y, more = {}) {
    const axis = (title, extra) => ({
      title: { text: plain(title) },
      gridcolor: colour("line"),
      zerolinecolor: colour("line"),
      linecolor: colour("faint"),
      automargin: true,
      ...extra,
    });
    return {
      ...more,
      xaxis: axis(x, more.xaxis),
      yaxis: axis(y, more.yaxis),
      paper_bgcolor: colour("ground"),
      plot_bgcolor: colour("ground"),
      font: { color: colour("ink"), family: "system-ui, sans-serif", size: 13 },
      margin: { l: 60, r: 15, t: 45, b: 55 },
      hovermode: "closest",
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", ...more.legend },
    };
  }

  async function show(figure, traces, shape) {
    await Plotly.react(figure.querySelector(".drawing"), traces, shape, {
      responsive: true,
      displaylogo: false,
      displayModeBar: !isNarrow,
      modeBarButtonsToRemove: ["select2d", "lasso2d"],
    });
    // Dozens of shapes without names: a screen reader has the label of the drawing and its table.
    document.querySelectorAll(".drawing svg, #js-plotly-tester").forEach((svg) => svg.setAttribute("aria-hidden", "true"));
  }

  // ---- Plots of a run ----

  let kept = run ? run.merits.map((_, i) => i) : [];
  const valueOf = (parameter, i) => parameter.values[parameter.codes[i]];

  function describe(i) {
    const values = run.parameters.map((p) => `${p.name}=${valueOf(p, i)}`);
    const lines = [];
    for (let at = 0; at < values.length; at += 5) lines.push(values.slice(at, at + 5).join(" "));
    return `trial ${run.numbers[i]}: ${rounded(run.merits[i])} ${plain(run.unit)}<br>${lines.map(plain).join("<br>")}`;
  }

  function baselineTrace(xs) {
    if (run.baseline === null || !xs.length) return [];
    return [{
      x: [xs.reduce((a, b) => Math.min(a, b)), xs.reduce((a, b) => Math.max(a, b))],
      y: [run.baseline, run.baseline],
      mode: "lines",
      name: "cuBLAS in the finals",
      line: { color: colour("second"), dash: "dash" },
    }];
  }

  function history(figure) {
    const seconds = run.isRecorded ? "seconds of the replay" : "seconds since the run began";
    const axis = select(figure, "along", "Along", ["trials", seconds], "trials");
    const along = axis ? run.seconds : run.numbers;
    const xs = kept.map((i) => along[i]);
    const steps = [];
    for (const i of kept) {
      if (!steps.length || better(run.merits[i], run.merits[steps[steps.length - 1]])) steps.push(i);
    }
    const lastX = xs.reduce((a, b) => Math.max(a, b), 0);
    const line = steps.map((i) => [along[i], run.merits[i]]);
    if (line.length) line.push([lastX, line[line.length - 1][1]]);
    fillTable(figure, ["trial", "seconds", `best so far, ${run.unit}`],
      steps.map((i) => [run.numbers[i], run.seconds[i], run.merits[i]]));
    return show(figure, [
      {
        x: xs,
        y: kept.map((i) => run.merits[i]),
        text: kept.map(describe),
        hoverinfo: "text",
        type: kept.length > manyPoints && hasWebGL() ? "scattergl" : "scatter",
        mode: "markers",
        name: "one config",
        marker: { color: colour("dot"), size: kept.length > manyPoints ? 4 : 6 },
      },
      {
        x: line.map((point) => point[0]),
        y: line.map((point) => point[1]),
        mode: "lines",
        name: "best so far",
        line: { color: colour("first"), shape: "hv", width: 3 },
      },
      ...baselineTrace(xs),
    ], layout(axis ? seconds : "trial", run.unit));
  }

  function distribution(figure) {
    const merits = kept.map((i) => run.merits[i]);
    const sorted = [...merits].sort((a, b) => (better(a, b) ? -1 : 1));
    const at = (share) => sorted[Math.round(share * (sorted.length - 1))];
    fillTable(figure, ["configs", run.unit], sorted.length
      ? [["best", at(0)], ["best tenth from", at(0.1)], ["best quarter from", at(0.25)],
        ["median", at(0.5)], ["worst quarter from", at(0.75)], ["worst", at(1)]]
      : []);
    const mark = run.baseline === null ? [] : [{
      type: "line", x0: run.baseline, x1: run.baseline, yref: "paper", y0: 0, y1: 1,
      line: { color: colour("second"), dash: "dash" },
      label: { text: "cuBLAS", textangle: 0, textposition: "end", font: { color: colour("second") } },
    }];
    return show(figure, [{
      x: merits,
      type: "histogram",
      nbinsx: 60,
      marker: { color: colour("bar"), line: { color: colour("ground"), width: 1 } },
      hovertemplate: "%{x}: %{y} configs<extra></extra>",
    }], layout(run.unit, "configs", { shapes: mark }));
  }

  function importance(figure) {
    const rows = [...run.importance].reverse();
    fillTable(figure, ["parameter", "share"], run.importance);
    return show(figure, [{
      x: rows.map((row) => row[1]),
      y: rows.map((row) => plain(row[0])),
      type: "bar",
      orientation: "h",
      marker: { color: colour("bar") },
      hovertemplate: "%{y}: %{x:.1%}<extra></extra>",
    }], layout(rows.length ? "share" : "too few configs ran to tell", "", {
      xaxis: { tickformat: ".0%" }, yaxis: { type: "category" },
    }));
  }

  const names = run ? run.parameters.map((p) => p.name) : [];
  const important = run ? [...run.importance.map((row) => row[0]), ...names] : [];

  function parameter(figure) {
    const chosen = run.parameters[select(figure, "parameter", "Parameter", names, important[0])];
    if (!chosen) return show(figure, [], layout("no parameter varies", run.unit));
    const groups = chosen.values.map((_, code) => kept.filter((i) => chosen.codes[i] === code));
    fillTable(figure, [chosen.name, "configs", `best, ${run.unit}`, `median, ${run.unit}`],
      chosen.values.map((value, code) => {
        const merits = groups[code].map((i) => run.merits[i]).sort((a, b) => a - b);
        return merits.length
          ? [String(value), merits.length, best(merits), merits[merits.length >> 1]]
          : [String(value), 0, null, null];
      }));
    return show(figure, chosen.values.map((value, code) => ({
      y: groups[code].map((i) => run.merits[i]),
      name: plain(value),
      type: "box",
      boxpoints: "outliers",
      marker: { color: colour("first"), size: 4 },
      line: { color: colour("first") },
      fillcolor: colour("raised"),
    })), layout(chosen.name, run.unit, { showlegend: false, xaxis: { type: "category" } }));
  }

  function heatmap(figure) {
    const [across, up] = [["x", "Across", 0], ["y", "Up", 1]].map(
      ([name, label, place]) => run.parameters[select(figure, name, label, names, important[place])]);
    if (!across || !up) return show(figure, [], layout("too few parameters vary", ""));
    const cells = up.values.map(() => across.values.map(() => null));
    for (const i of kept) {
      const row = cells[up.codes[i]];
      const column = across.codes[i];
      if (row[column] === null || better(run.merits[i], row[column])) row[column] = run.merits[i];
    }
    fillTable(figure, [`${up.name} / ${across.name}`, ...across.values.map(String)],
      cells.map((row, place) => [String(up.values[place]), ...row]));
    const fewCells = across.values.length * up.values.length <= 150;
    return show(figure, [{
      x: across.values.map((value) => plain(value)),
      y: up.values.map((value) => plain(value)),
      z: cells,
      type: "heatmap",
      colorscale: "Cividis",
      reversescale: !run.moreIsBetter,
      texttemplate: fewCells ? "%{z:.4~r}" : "",
      hovertemplate: `${plain(across.name)} %{x}, ${plain(up.name)} %{y}: %{z:.4~r}<extra></extra>`,
      colorbar: { title: { text: plain(run.unit) } },
    }], layout(across.name, up.name, { xaxis: { type: "category" }, yaxis: { type: "category" } }));
  }

  // ---- Plots of kernels side by side ----

  const beside = innerWidth >= 900
    ? { orientation: "v", x: 1.02, y: 1, yanchor: "top" }
    : { orientation: "h", x: 0, y: -0.4, yanchor: "top" };
  const kernelNames = kernels ? [...new Set(kernels.timed.map((one) => one.kernel))] : [];
  // For the legend, which is long.
  const makeRoom = (figure, numLines) => {
    const height = innerWidth >= 900 ? Math.max(420, 230 + 20 * numLines) : 420 + 21 * numLines;
    figure.querySelector(".drawing").style.height = `${height}px`;
  };
  // The same for a kernel in every plot.
  const look = (place) => {
    const color = colours[place % colours.length];
    return {
      marker: { symbol: symbols[place % symbols.length], size: 9, color },
      line: { dash: lineStyles[place % lineStyles.length], width: 1.5, color },
    };
  };

  function sizes(figure) {
    const measure = select(figure, "measure", "Show", ["GFLOP/s", "percent of cuBLAS"], "GFLOP/s");
    const key = measure ? "percent" : "gflops";
    const at = (kernel, size) => kernels.timed.find((one) => one.kernel === kernel && one.size === size);
    // Within one decade a logarithmic axis has no numbers.
    const values = kernels.timed.map((one) => one[key]).filter((value) => value !== null);
    const isWide = Math.max(...values) > 10 * Math.min(...values);
    makeRoom(figure, kernelNames.length);
    fillTable(figure, ["kernel", ...kernels.sizes],
      kernelNames.map((kernel) => [kernel, ...kernels.sizes.map((size) => at(kernel, size)?.[key] ?? null)]));
    return show(figure, kernelNames.map((kernel, place) => ({
      x: kernels.sizes.map((size) => plain(size)),
      y: kernels.sizes.map((size) => at(kernel, size)?.[key] ?? null),
      name: plain(kernel),
      mode: "lines+markers",
      connectgaps: true,
      ...look(place),
    })), layout("M=N=K or MxNxK", measure ? "percent of cuBLAS" : "GFLOP/s", {
      xaxis: { type: "category" }, yaxis: isWide ? { type: "log", dtick: 1 } : {}, legend: beside,
    }));
  }

  function ladder(figure) {
    const last = kernels.sizes[kernels.sizes.length - 1];
    const size = kernels.sizes[select(figure, "size", "Size", kernels.sizes, last)];
    const bars = kernels.timed.filter((one) => one.size === size);
    fillTable(figure, ["kernel", "time us", "GFLOP/s", "% of cuBLAS", "% of roof"],
      bars.map((one) => [one.kernel, one.time_us, one.gflops, one.percent, one.roof]));
    const rows = [...bars].reverse();
    // As long as the others need: tensor cores would flatten the ladder.
    const baseline = bars.find((one) => one.isBaseline);
    const most = Math.max(...bars.map((one) => one.gflops).filter(
      (gflops) => !baseline || gflops < 1.6 * baseline.gflops));
    const isCut = bars.some((one) => one.gflops > most);
    figure.querySelector(".drawing").style.height = `${120 + 26 * rows.length}px`;
    return show(figure, [{
      x: rows.map((one) => one.gflops),
      y: rows.map((one) => plain(one.kernel)),
      text: rows.map((one) => (
        one.percent === null ? "" : `${rounded(one.percent, 3)} %${isNarrow ? "" : " of cuBLAS"}`)),
      type: "bar",
      orientation: "h",
      textposition: "auto",
      insidetextfont: { color: colour("ink") },
      marker: {
        color: rows.map((one) => colour(one.isBaseline ? "marked" : "bar")),
      },
      hovertemplate: "%{y}: %{x:,.0f} GFLOP/s<br>%{text}<extra></extra>",
    }], layout(`GFLOP/s${isCut ? " (long bars cut)" : ""}`, "", {
      xaxis: { range: [0, (isNarrow ? 1.5 : 1.25) * most] },
      yaxis: { type: "category", tickfont: { size: isNarrow ? 9 : 13 } },
    }));
  }

  function roofline(figure) {
    makeRoom(figure, kernelNames.length + kernels.slopes.length + kernels.ceilings.length);
    fillTable(figure, ["kernel", "size", "FLOP per byte", "TFLOP/s", "% of roof"],
      kernels.timed.map((one) => [one.kernel, one.size, one.intensity, one.gflops / 1000, one.roof]));
    const intensities = kernels.timed.map((one) => one.intensity);
    const low = Math.min(1, ...intensities.map((x) => x / 2));
    const high = Math.max(1000, ...intensities.map((x) => 2 * x));
    const most = Math.max(...kernels.ceilings.map((one) => one[1]));
    const steepest = Math.max(...kernels.slopes.map((one) => one[1]));
    // Memories are thin, arithmetic is thick: dashes tell those of one kind apart.
    const roofs = [
      ...kernels.slopes.map(([name, speed], place) => [name, `${rounded(1000 * speed)} GB/s`,
        [low, most / speed], [low * speed, most], { dash: lineStyles[place], width: 1 }]),
      ...kernels.ceilings.map(([name, tflops], place) => [name, `${rounded(tflops)} TFLOP/s`,
        [tflops / steepest, high], [tflops, tflops], { dash: lineStyles[place], width: 2.5 }]),
    ];
    return show(figure, [
      ...roofs.map(([name, figureText, x, y, line]) => ({
        x, y,
        mode: "lines",
        name: plain(`${name}: ${figureText}`),
        line: { color: colour("ink"), ...line },
      })),
      ...kernelNames.map((kernel, place) => {
        const own = kernels.timed.filter((one) => one.kernel === kernel);
        return {
          x: own.map((one) => one.intensity),
          y: own.map((one) => one.gflops / 1000),
          text: own.map((one) => plain(one.size)),
          name: plain(kernel),
          mode: "markers",
          hovertemplate: "%{text}: %{y:.4~r} TFLOP/s",
          ...look(place),
        };
      }),
    ], layout("FLOP per byte that must move", "TFLOP/s", {
      xaxis: { type: "log", dtick: 1 }, yaxis: { type: "log", dtick: 1 }, legend: beside,
    }));
  }

  // ---- When what is drawn ----

  const painters = { history, distribution, importance, parameter, heatmap, sizes, ladder, roofline };
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

  function makeFilter() {
    document.querySelector("#filter .fields").append(...run.parameters.map((p, place) =>
      make("fieldset", {}, [
        make("legend", { textContent: p.name }),
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

  if (run) {
    makeFilter();
    applyFilter();
  }
  function start() {
    document.head.append(make("script", { textContent: document.getElementById("plotly").textContent }));
    // What is far down is drawn when it comes near.
    const watcher = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) {
          watcher.unobserve(entry.target);
          draw(entry.target);
        }
      }
    }, { rootMargin: "300px" });
    figures.forEach((figure) => watcher.observe(figure));
    addEventListener("beforeprint", () => figures.filter((figure) => !drawn.has(figure)).forEach(draw));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAgain);
  }

  // After the first frame: the text is there at once, Plotly takes its while.
  requestAnimationFrame(() => setTimeout(start));
})();

// Draws the charts of #charts with Chart.js: lines with bands, bars. Drawn anew when the theme changes.
(() => {
  const data = JSON.parse(document.getElementById("charts").textContent);
  const drawn = [];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const fixed = ["train", "eval", "explore", "validate", "seed", "signals", "snapshot"]; // one colour in all charts
  const place = (series, at) => (fixed.includes(series.name) ? fixed.indexOf(series.name) : at) % 7;
  const line = (many) => (series, at) => {
    const own = colour(`--c${at % 7}`);
    const plain = { borderColor: own, backgroundColor: own, label: series.name, data: series.values, tension: 0, spanGaps: true, pointRadius: 4 };
    if (!series.low || many) return [{ ...plain, low: series.low, high: series.high }];
    const edge = { borderWidth: 0, pointRadius: 0, pointHitRadius: 0, backgroundColor: own + "33", band: true, spanGaps: true };
    return [plain, { ...edge, data: series.low, fill: false }, { ...edge, data: series.high, fill: "-1" }];
  };
  const bar = (series, at) => [{ label: series.name, data: series.values, backgroundColor: colour(`--c${place(series, at)}`), maxBarThickness: 48 }];
  const shown = (chart, unit) => (item) => {
    const set = chart.series.find((each) => each.name === item.dataset.label);
    const say = (value) => (value === null || value === undefined ? "" : Number(value).toLocaleString(undefined, { maximumFractionDigits: 2 }));
    const band = set && set.low ? ` [${say(set.low[item.dataIndex])} - ${say(set.high[item.dataIndex])}]` : "";
    return ` ${item.dataset.label}: ${say(set ? set.values[item.dataIndex] : item.raw)}${band} ${unit}`;
  };
  const figured = (chart) => chart.kind === "bars" && chart.series.length === 1 && !chart.stacked;
  // Intervals as whiskers, where the bands of several series would hide each other; a lone bar's figure at its end.
  const marks = (chart) => ({ id: "marks", afterDatasetsDraw: ({ ctx, data: { datasets }, scales }) => {
    ctx.save();
    const apart = Math.min(6, 24 / datasets.length); // however many, within the padding
    datasets.forEach((set, at) => set.low && set.data.forEach((_, index) => {
      if (set.low[index] === null) return;
      const x = scales.x.getPixelForValue(index) + apart * (at - (datasets.length - 1) / 2);
      ctx.strokeStyle = set.borderColor; ctx.globalAlpha = 0.7; ctx.lineWidth = 2; ctx.beginPath();
      ctx.moveTo(x, scales.y.getPixelForValue(set.low[index])); ctx.lineTo(x, scales.y.getPixelForValue(set.high[index])); ctx.stroke();
    }));
    ctx.globalAlpha = 1; ctx.fillStyle = colour("--text"); ctx.textBaseline = "middle"; ctx.font = "12px system-ui, sans-serif";
    ctx.textAlign = chart.lying ? "left" : "center";
    if (figured(chart)) datasets[0].data.forEach((value, index) => {
      const [x, y] = chart.lying ? [scales.x.getPixelForValue(value) + 5, scales.y.getPixelForValue(index)] : [scales.x.getPixelForValue(index), scales.y.getPixelForValue(value) - 8];
      ctx.fillText(Number(value).toLocaleString(undefined, { maximumFractionDigits: 2 }), x, y);
    });
    ctx.restore();
  } });
  const options = (chart) => {
    const axis = (title, rest) => ({
      title: { display: Boolean(title), text: title, color: colour("--faint") }, ticks: { color: colour("--faint") },
      grid: { color: colour("--line") }, ...rest,
    });
    const value = axis(chart.unit === "number" ? "" : chart.unit, { beginAtZero: true, suggestedMax: Math.max(0, ...chart.series.flatMap((each) => each.high || [])), ...(figured(chart) ? { grace: "12%" } : {}), stacked: Boolean(chart.stacked) });
    if (["signals", "candidates", "number", "tokens", "samples", "responses", "comparisons", "advice"].includes(chart.unit)) value.ticks.precision = 0;
    const broad = chart.kind === "bars" || (chart.series.length > 1 && chart.series.some((each) => each.low)); // room for whiskers
    const label = axis(chart.axis, { stacked: Boolean(chart.stacked), offset: broad });
    return {
      animation: false, responsive: true, layout: { padding: { right: 14 } }, maintainAspectRatio: false, indexAxis: chart.lying ? "y" : "x",
      interaction: { mode: "index", axis: chart.lying ? "y" : "x", intersect: false },
      scales: chart.lying ? { x: value, y: label } : { x: label, y: value },
      plugins: {
        legend: { display: chart.series.length > 1 || chart.kind === "lines", labels: { color: colour("--text"), filter: (item, all) => !all.datasets[item.datasetIndex].band } },
        tooltip: { filter: (item) => !item.dataset.band, callbacks: { label: shown(chart, chart.unit) } },
      },
    };
  };
  const draw = () => {
    drawn.splice(0).forEach((chart) => chart.destroy());
    document.querySelectorAll("canvas[data-chart]").forEach((canvas) => {
      const chart = data[canvas.dataset.chart];
      const datasets = chart.series.flatMap(chart.kind === "lines" ? line(chart.series.length > 1) : bar);
      const type = chart.kind === "lines" ? "line" : "bar";
      drawn.push(new Chart(canvas, { type, data: { labels: chart.labels, datasets }, options: options(chart), plugins: [marks(chart)] }));
    });
    document.documentElement.dataset.drawn = drawn.length;
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();

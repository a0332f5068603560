"""The frame of the report's page: its style, light and dark, and how to read it."""

DEFINITIONS = """
<h2>How to read it</h2>
<ul>
<li><b>Area</b>: the trapezoid of the metric over the number of labels, divided by the range of
labels; the mean height of the curve. ± is the standard deviation over seeds.</li>
<li><b>Intervals</b> are 95&nbsp;% bootstrap intervals over seeds. Seeds are drawn, and the runs of
all strategies under a drawn seed are taken together. The tails are widened for few seeds
(Hesterberg 2015); up to 8 seeds all resamples are counted, none is drawn.</li>
<li><b>Differences</b> are taken under the same seed; positive is better, also where the metric is
an error. <b>p, sign flips</b>: the share of all ways to turn the signs of the differences that give
a mean as far from zero; exact, and free of assumptions. <b>p, t test</b>: Student’s, for normal
differences. Both are corrected for all comparisons with that baseline in the table (Holm): of
strategies with a run up to the last number of labels under a seed of the baseline.</li>
<li><b>Verdict</b>: better or worse if the sign-flip test says so at 5&nbsp;%; likely if only the t
test does and there are too few seeds for sign flips to say anything; else no evidence. That goes by
the area; the difference at the end is told beside it and not tested.</li>
<li><b>Labels needed</b>: where the mean curve first reaches the target, by straight lines between
rounds. The target is 97&nbsp;% of the best final mean of all strategies (for errors, the best
divided by 0.97). <b>Saved</b>: 1 − labels of the strategy / labels of the best other baseline.</li>
<li><b>First batch</b>: seconds to represent the pool and select, without training.
<b>Imbalance</b>: largest over smallest class count. <b>Effective share</b>: effective size of a
batch’s weights over its size; 100&nbsp;% if all weigh the same.</li>
</ul>
"""

STYLE = """
:root { color-scheme: light dark; --paper: #fdfdfb; --soft: #5d6670; --card: #f3f4f2;
  --warn: #fbf1dc; LIGHT }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --soft: #9aa4ad; --card: #1c2024;
  --warn: #2c2616; DARK } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 72rem; background: var(--paper);
  color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; text-wrap: balance; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; }
section + section { border-top: 2px solid var(--rule); margin-top: 3rem; }
h3 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
h4 { font-size: .95rem; margin: 1rem 0 .3rem; }
p { max-width: 48rem; margin: .4rem 0; }
nav li { margin: .3rem 0; color: var(--ink); }
a { color: var(--s0); }
.lede { font-size: 1.1rem; }
.note, small, li { color: var(--soft); }
.warn { background: var(--warn); padding: .5rem .8rem; border-radius: .4rem; max-width: 52rem;
  margin: .6rem 0; }
.warn ul { margin: .2rem 0; }
.says { list-style: none; padding: 0; max-width: 60rem; }
.says li { padding: .25rem 0 .25rem .8rem; border-left: .25rem solid var(--base); margin: .3rem 0;
  color: var(--ink); }
.says .better { border-color: var(--s0); }
.says .worse { border-color: var(--s1); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .4rem 0; }
th, td { text-align: right; padding: .4rem .8rem; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
th { font-weight: 500; color: var(--soft); font-size: .85rem; vertical-align: bottom;
  white-space: normal; min-width: 4.5rem; max-width: 11rem; }
th:first-child, td:first-child { text-align: left; }
td:first-child { font-weight: 600; }
.wins th { font-size: .75rem; min-width: 3rem; padding: .3rem; }
.wins td { text-align: center; padding: .3rem .4rem; }
.wins td:first-child { text-align: left; }
.wins td[style] { background: color-mix(in srgb, var(--s0) var(--share), transparent); }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(28rem, 100%), 1fr));
  gap: 1rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(16rem, 100%), 1fr));
  gap: 1rem; margin-top: .6rem; }
figure { margin: 0; background: var(--card); border-radius: .5rem; padding: .6rem; }
figure.wide { max-width: 46rem; margin: .5rem 0; }
svg { width: 100%; height: auto; display: block; }
svg text { font-family: system-ui, sans-serif !important; }
ul { padding-left: 1.1rem; max-width: 52rem; }
code { background: var(--card); padding: .15rem .35rem; border-radius: .25rem;
  overflow-wrap: anywhere; }
@media (max-width: 40rem) { td small { display: block; } th, td { padding: .35rem .4rem; } }
@media print { section { break-inside: auto; } figure, tr { break-inside: avoid; } }
"""

FRAME = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
{body}
</html>
"""

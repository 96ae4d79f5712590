"""The report's style sheet: one page, light or dark as the reader's system is, wide or narrow."""

CSS = """
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#16191f;--soft:#5b6472;--line:#e3e6eb;--grid:#e9ebef;
--good:#0a7d4f;--bad:#c0312b;--s0:#2a66d9;--s1:#e0731d;--s2:#12957f;--s3:#b0379b;--s4:#b8930b;--s5:#6a4fd0;--s6:#d23f5e;
--s7:#5c7f1f;--draft:#e0731d;--verify:#2a66d9;--other:#a6aebb;
--shade:0 1px 2px rgb(20 30 50/.05),0 4px 16px rgb(20 30 50/.05)}
@media (prefers-color-scheme:dark){:root{--page:#0f1216;--card:#181c22;--ink:#e9ecf1;--soft:#98a2b1;--line:#2a3038;
--grid:#262b33;--good:#4cc38a;--bad:#ff7b72;--s0:#6ea0ff;--s1:#ff9d4d;--s2:#3fc9b0;--s3:#e07bcd;--s4:#e0bd3f;
--s5:#a592ff;--s6:#ff7f98;--s7:#a3c85a;--draft:#ff9d4d;--verify:#6ea0ff;--other:#66707e;--shade:none}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
-webkit-text-size-adjust:100%}
main{max-width:1120px;margin:0 auto;padding:40px 24px 64px}
h1{font-size:clamp(24px,4vw,34px);line-height:1.2;letter-spacing:-.02em;margin:0 0 6px}
h2{font-size:19px;letter-spacing:-.01em;margin:44px 0 4px}
h3{font-size:14px;margin:0 0 12px;color:var(--soft);font-weight:600}
p{margin:0 0 12px}.soft{color:var(--soft)}.lead{color:var(--soft);font-size:16px;max-width:90ch}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(200px,1fr));gap:14px;margin:26px 0 8px}
.tile,.card{background:var(--card);border:1px solid var(--line);border-radius:12px;box-shadow:var(--shade)}
.tile{padding:16px 18px}.tile b{display:block;font-size:30px;line-height:1.2;letter-spacing:-.02em;
font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:13px;display:block;overflow-wrap:anywhere}
.tile .name{font-weight:600;color:var(--ink)}.good b{color:var(--good)}.bad b{color:var(--bad)}
.note{border-left:3px solid var(--s1);background:var(--card);padding:10px 14px;border-radius:0 8px 8px 0;margin:16px 0}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:16px;margin-top:14px}
.card{padding:18px 20px;min-width:0}
.legend{display:flex;flex-wrap:wrap;gap:6px 18px;margin:10px 0 0;padding:0;list-style:none;font-size:13px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:7px}
.plot{display:block;overflow:visible;font-size:12px;font-variant-numeric:tabular-nums}
.inner,.inner svg{overflow:visible}
text{fill:var(--ink)}text.tick,text.axis{fill:var(--soft)}text.group{font-weight:600;font-size:13px}
text.group,text.value{paint-order:stroke;stroke:var(--card);
stroke-width:5px}text.tick{font-size:11px}
line.grid{stroke:var(--grid)}line.mark{stroke:var(--soft);stroke-width:1.5;stroke-dasharray:4 3}
.s0{fill:var(--s0);stroke:var(--s0);background:var(--s0)}.s1{fill:var(--s1);stroke:var(--s1);background:var(--s1)}
.s2{fill:var(--s2);stroke:var(--s2);background:var(--s2)}.s3{fill:var(--s3);stroke:var(--s3);background:var(--s3)}
.s4{fill:var(--s4);stroke:var(--s4);background:var(--s4)}.s5{fill:var(--s5);stroke:var(--s5);background:var(--s5)}
.s6{fill:var(--s6);stroke:var(--s6);background:var(--s6)}.s7{fill:var(--s7);stroke:var(--s7);background:var(--s7)}
.draft{fill:var(--draft);background:var(--draft)}.verify{fill:var(--verify);background:var(--verify)}
.other{fill:var(--other);background:var(--other)}rect{stroke:none!important}
polyline.line{fill:none;stroke-width:2.25;stroke-linejoin:round}circle.dot{stroke:var(--card);stroke-width:1.5}
.scroll{overflow-x:auto;margin-top:14px}summary{cursor:pointer;font-size:14px;color:var(--soft);font-weight:600}
details[open] summary{margin-bottom:12px}
table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:7px 9px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
th{color:var(--soft);font-weight:600;vertical-align:bottom;white-space:normal}
th:first-child,td:first-child{text-align:left}
td.text,th.text{text-align:left}tbody tr:last-child td{border-bottom:0}
tr.head td{font-weight:600;padding-top:16px;background:none}tr.sum td{font-weight:600}
td.bad{color:var(--bad);font-weight:700}
tbody tr:not(.head):hover td{background:color-mix(in srgb,var(--s0) 7%,transparent)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:6px 20px;margin:0;font-size:14px}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
footer{margin-top:44px;color:var(--soft);font-size:13px}
@media (max-width:600px){main{padding:24px 14px 40px}.card{padding:14px}.tile b{font-size:25px}
dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:10px}}
@media print{body{background:#fff}.card,.tile{box-shadow:none;break-inside:avoid}}
"""

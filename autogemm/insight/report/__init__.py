"""Writes one HTML file that explains a run, a benchmark or a database, and loads nothing."""

from autogemm.insight.report.kernels import bench_page, bench_report, database_report
from autogemm.insight.report.page import BEGINNING, Page, render_page, require_packages
from autogemm.insight.report.run import run_report

__all__ = [
    "BEGINNING",
    "Page",
    "bench_page",
    "bench_report",
    "database_report",
    "render_page",
    "require_packages",
    "run_report",
]

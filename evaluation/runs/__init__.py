"""Runs: one folder each, that is computed once, resumes after a kill, and says in `run.json` what it is.

- `stage` begins, resumes and ends a run; `store` reads and writes its tables, facts and rows.
- `record` is `run.json`, `results` the files that it lists, `paths` the paths of other runs in it.
- `lock` keeps other processes out; `pages` are folders of pages that are no runs.
- `processes` splits work among processes, `progress` shows it, and `tracking` sends numbers to W&B, without
  `private_texts`.
"""

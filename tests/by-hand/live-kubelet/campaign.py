#!/usr/bin/env python3
"""Runs cases (`cases_*.py`) on a node of `node.py`: makes a pod, breaks something, and writes down what criscope says and what the API says.

The result is a file of JSON lines; `table` makes a table in Markdown of it, with the judgements of a reader.

usage: campaign.py run MODE DIRECTORY RESULTS [CASE...]
       campaign.py table RESULTS JUDGEMENTS
  MODE, DIRECTORY  as for node.py
  RESULTS          a file; a case that is in it already is not run again
  JUDGEMENTS       a file of lines: CASE or CASE/MODE | right, partly, wrong or silent | why
environment: JOBS, the number of cases at the same time (default 4); those that break the whole node run alone, afterwards
"""
import concurrent.futures
import json
import os
import sys
import threading
import traceback

import case
import node


def run_case(function, mode, results, lock):
    name = function.title
    this = case.Case(name, mode, node.Daemons(mode))
    try:
        function(this)
    except Exception:
        this.notes.append(traceback.format_exc(limit=3))
    finally:
        try:
            this.clean_up()
        except Exception:
            this.notes.append(traceback.format_exc(limit=3))
    with lock, open(results, "a") as file:
        file.write(json.dumps({"case": name, "mode": mode, "what": function.__doc__, "looks": this.looks, "notes": this.notes}) + "\n")
        print(name, this.notes or "", flush=True)


def read(results):
    if not os.path.exists(results):
        return []
    with open(results) as file:
        return [json.loads(line) for line in file]


def run_all(mode, results, names):
    import cases_further  # noqa: F401
    import cases_hands  # noqa: F401
    import cases_last  # noqa: F401
    import cases_more  # noqa: F401
    import cases_node  # noqa: F401
    import cases_pod  # noqa: F401
    import cases_sixth  # noqa: F401
    import cases_unseen  # noqa: F401
    done = {each["case"] for each in read(results) if each["mode"] == mode}
    chosen = [each for each in case.CASES if mode in each.modes and each.title not in done
              and (not names or each.title in names)]
    node.api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.NAMESPACE}})
    lock = threading.Lock()
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", "4"))) as pool:
        list(pool.map(lambda each: run_case(each, mode, results, lock), [each for each in chosen if not each.alone]))
    for each in chosen:
        if each.alone:
            run_case(each, mode, results, lock)


# --- the table -----------------------------------------------------------------------------------------------------------


ORDER = ["", "wrong", "silent", "partly", "right"]


def state_of(look):
    rows = look["rows"]
    return ", ".join(row.get("state", "?") for row in rows) if isinstance(rows, list) and rows else "not listed"


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def table(results, judgements):
    verdicts = {}
    with open(judgements) as file:
        for line in file:
            if line.count("|") >= 2:
                name, verdict, why = (part.strip() for part in line.split("|", 2))
                verdicts[name] = (verdict, why)
    print("| case | setup | first lines | state | judgement | why |\n|---|---|---|---|---|---|")
    rows = [(*verdicts.get(f"{each['case']}/{each['mode']}", verdicts.get(each["case"], ("", ""))), each) for each in read(results)]
    for verdict, why, each in sorted(rows, key=lambda row: ORDER.index(row[0])):
        lines = "<br>".join(f"{look['label']}: `{cell(look['lines'][0] if look['lines'] else '')}`" for look in each["looks"])
        states = "<br>".join(f"{look['label']}: {state_of(look)}" for look in each["looks"])
        print(f"| {each['case']}: {cell(each['what'])} | {each['mode']} | {lines} | {states} | {verdict} | {cell(why)} |")


def main():
    verb = sys.argv[1] if len(sys.argv) > 3 else ""
    if verb == "run" and os.environ.get("INSIDE") != "1":
        os.environ["INSIDE"] = "1"
        results = os.path.abspath(sys.argv[4])
        node.enter(sys.argv[2], os.path.abspath(sys.argv[3]),
                   [sys.executable, os.path.abspath(__file__), "run", *sys.argv[2:4], results, *sys.argv[5:]])
    elif verb == "run":
        run_all(sys.argv[2], sys.argv[4], sys.argv[5:])
    elif verb == "table":
        table(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()

from __future__ import annotations

import inspect
import os
import sys
import time
import warnings

from tests.arguments import calls, wrong
from tests.arguments.public import public

warnings.simplefilter("ignore")


def valid(each):
    found = {}
    for p in each.parameters:
        own = calls.OF.get(each.name, {})
        if p.kind is p.VAR_KEYWORD:
            continue
        if p.kind is p.VAR_POSITIONAL:
            if "*" + p.name in own:
                found["*" + p.name] = own["*" + p.name]()
        elif p.name in own:
            found[p.name] = own[p.name]()
        elif (p.name in calls.COMMON and p.default is p.empty) or p.name in (
            "n",
            "chunk",
            "n_bootstrap",
            "progress",
            "n_ctx",
            "lengths",
        ):
            found[p.name] = calls.COMMON[p.name]()
        elif p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
            raise KeyError(f"no valid {p.name}")
    return found


def bound(each):
    if each.owner is None:
        return each.call
    name = each.name.rpartition(".")[0]
    held = inspect.getattr_static(each.owner, each.attribute)
    if isinstance(held, (classmethod, staticmethod)):
        return getattr(each.owner, each.attribute)
    if name in calls.ON:
        return getattr(calls.ON[name](), each.attribute)
    own = calls.OF.get(name)
    return getattr(each.owner(**{k: v() for k, v in own.items()}), each.attribute)


def go(f, v):
    args = [v.pop(k) for k in list(v) if k[0] == "*"]
    return f(*args, **v)


VARIADIC = {
    "certify.certify",
}


def main():
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    only = sys.argv[1:]
    for each in public():
        if only and not any(o in each.name for o in only):
            continue
        if each.name in (
            "reproduce",
            "run_study",
            "judge.judge_methods",
            "as_bridge",
            "load_arena",
            "text.load_sst2",
            "studies.Measurement.measure",
            "studies.TrainExperiment.run",
            "studies.Study.certificate_patterns",
            "judge.load_judgement",
            "DyckTransformer.process_weights_",
        ):
            continue
        try:
            f = bound(each)
            v = valid(each)
            if "--valid" in os.environ.get("HOW", ""):
                t = time.time()
                go(f, v)
                dt = time.time() - t
                print("OK ", each.name, f"{dt:.3f}" if dt > 0.1 else "")
        except Exception as e:
            print("BAD", each.name, type(e).__name__, str(e)[:150])
            continue
        if "--valid" in os.environ.get("HOW", ""):
            continue
        t = time.time()
        for p in each.parameters:
            if p.kind is p.VAR_KEYWORD:
                continue
            taken = []
            for kind in wrong.values():
                value = wrong.values()[kind]

                def call():
                    result = go(
                        bound(each),
                        {**valid(each), ("*" * (p.kind is p.VAR_POSITIONAL) + p.name): value},
                    )
                    return result

                try:
                    got = wrong.outcome(call, p.name, value)
                except BaseException as e:
                    if isinstance(e, KeyboardInterrupt):
                        raise
                    got = f"BASE {type(e).__name__}"
                if got == "taken":
                    taken.append(kind)
                elif got != "refused":
                    print("ERR", each.name, p.name, kind, "|", got, flush=True)
            print(
                "TAKEN", each.name, p.name, str(p.annotation).replace(" ", ""), *taken, flush=True
            )
        print("TIME", each.name, f"{time.time() - t:.2f}")


main()

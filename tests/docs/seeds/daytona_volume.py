from concurrent.futures import ThreadPoolExecutor

from fleetctl import DaytonaInterpreter

VOLUME = "rlm-volume-dspy"
REPO = "https://github.com/your-org/your-repo"


def process_chunk(chunk_id, data):
    code = (
        f"import json, os\n"
        f"data = {data!r}\n"
        f"processed = [x * 2 for x in data]\n"
        f"os.makedirs('/home/daytona/memory/artifacts', exist_ok=True)\n"
        f"with open(f'/home/daytona/memory/artifacts/chunk_{chunk_id}.json', 'w') as f:\n"
        f"    json.dump(processed, f)\n"
        f"SUBMIT(chunk_id={chunk_id}, count=len(processed))"
    )
    interp = DaytonaInterpreter(repo_url=REPO, timeout=120, volume_name=VOLUME)
    interp.start()
    try:
        return interp.execute(code)
    finally:
        interp.shutdown()


chunks = {0: [1, 2, 3], 1: [4, 5, 6], 2: [7, 8, 9]}

with ThreadPoolExecutor(max_workers=3) as pool:
    futures = [pool.submit(process_chunk, cid, d) for cid, d in chunks.items()]
    for f in futures:
        r = f.result()
        print(f"Chunk {r.chunk_id}: {r.count} items")

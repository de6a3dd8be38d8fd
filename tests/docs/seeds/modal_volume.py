from concurrent.futures import ThreadPoolExecutor

from fleetctl import ModalInterpreter

VOLUME = "rlm-volume-dspy"


def process_chunk(chunk_id, data):
    code = (
        f"import json\n"
        f"data = {data!r}\n"
        f"processed = [x * 2 for x in data]\n"
        f"save_to_volume(f'results/chunk_{chunk_id}.json', json.dumps(processed))\n"
        f"SUBMIT(chunk_id={chunk_id}, count=len(processed))"
    )
    with ModalInterpreter(timeout=120, volume_name=VOLUME) as interp:
        return interp.execute(code)


chunks = {0: [1, 2, 3], 1: [4, 5, 6], 2: [7, 8, 9]}

with ThreadPoolExecutor(max_workers=3) as pool:
    futures = [pool.submit(process_chunk, cid, data) for cid, data in chunks.items()]
    for f in futures:
        r = f.result()
        print(f"Chunk {r.chunk_id}: {r.count} items")

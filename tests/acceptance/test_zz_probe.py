import time
from tests.harness import eventually
def test_probe(workers, broker, fleet, database, shop):
    t=time.monotonic()
    w = workers.start()
    print("start", time.monotonic()-t)
    o = shop.new_order("10.00")
    r = fleet.submit("refund", o, {"user_id": "u"})
    t=time.monotonic()
    s = fleet.wait(r.thread_id, 10)
    print("done", time.monotonic()-t, s.status)
    broker.client.lpush("fleet", b"\xff\xfe garbage")
    time.sleep(1.5)
    print(w.child.poll())
    print(w.log()[-3000:])
    t=time.monotonic()
    print(w.terminate(), time.monotonic()-t)

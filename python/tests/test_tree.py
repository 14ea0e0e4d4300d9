"""Trees and flat schedulers of Python objects."""

import gc
import weakref

import fairlane
import pytest


class Packet:
    """Any object."""


def test_every_algorithm_hands_out_the_objects_that_came_in():
    for name in fairlane.algorithms():
        scheduler = fairlane.Scheduler(name)
        flows = [scheduler.add_flow(weight, 1000) for weight in (3, 1)]
        packets = [(flows[n % 2], 1000, Packet()) for n in range(20)]
        for flow, length, packet in packets:
            scheduler.enqueue(flow, length, packet)
        assert len(scheduler) == 20
        out = [scheduler.dequeue() for _ in range(20)]
        assert scheduler.dequeue() is None and len(scheduler) == 0
        for flow in flows:
            came = [packet for to, _, packet in packets if to == flow]
            left = [packet for to, _, packet in out if to == flow]
            assert all(a is b for a, b in zip(came, left, strict=True)), name


def test_flows_share_by_weight():
    scheduler = fairlane.Scheduler("qfq")
    flows = [scheduler.add_flow(weight, 1000) for weight in (3, 1)]
    for flow in flows:
        for _ in range(40):
            scheduler.enqueue(flow, 1000, None)
    first = [scheduler.dequeue()[0] for _ in range(40)]
    assert abs(first.count(flows[0]) - 30) <= 1


def test_a_tree_of_an_aggregating_algorithm_shares_by_weight():
    tree = fairlane.Tree("qfq+")
    heavy, light = tree.leaf(weight=3, max_len=1000), tree.leaf(max_len=1000)
    for number in range(40):
        tree.enqueue(heavy, 1000, ("heavy", number))
        tree.enqueue(light, 1000, ("light", number))
    out = [tree.dequeue() for _ in range(40)]
    heavies = [packet for owner, _, packet in out if owner == heavy]
    assert abs(len(heavies) - 30) <= 2
    assert heavies == [("heavy", number) for number in range(len(heavies))]
    assert tree.stats(heavy)["sent_packets"] == len(heavies)
    assert tree.stats()["queued_packets"] == len(tree) == 40


def test_classes_stand_within_classes():
    tree = fairlane.Tree("drr")
    inner = tree.inner("priority", weight=1)
    first, last = (tree.leaf(parent=inner, level=level) for level in (1, 0))
    each = tree.flows("drr", weight=1)
    for flow in (7, 8):
        tree.enqueue(each, 500, flow, flow=flow)
    tree.enqueue(last, 500, "last")
    tree.enqueue(first, 500, "first")
    out = [tree.dequeue()[2] for _ in range(4)]
    assert out.index("first") < out.index("last") and out.index(7) < out.index(8)
    assert tree.stats(each)["flows"] == 2


def test_a_ceiling_holds_packets_to_a_time():
    tree = fairlane.Tree("qfq")
    slow = tree.leaf(max_len=1000, ceil="8mbit", burst=1000)
    tree.enqueue(slow, 1000, 1)
    tree.enqueue(slow, 1000, 2)
    assert tree.dequeue(0) == (slow, 1000, 1)
    held = tree.dequeue(0)
    assert isinstance(held, fairlane.NotBefore) and not held
    assert 0 < held.time <= 1_000_001
    assert tree.dequeue(held.time) == (slow, 1000, 2)


def test_what_is_discarded_comes_back():
    tree = fairlane.Tree("qfq")
    leaf = tree.leaf()
    packets = [Packet(), Packet()]
    for packet in packets:
        tree.enqueue(leaf, 100, packet)
    tree.flush(leaf)
    gone = tree.take_discarded()
    assert [(owner, length, reason) for owner, length, _, reason in gone] == [(leaf, 100, "flushed")] * 2
    assert gone[0][2] is packets[0] and tree.take_discarded() == []
    scheduler = fairlane.Scheduler("drr")
    flow = scheduler.add_flow()
    scheduler.enqueue(flow, 100, packets[0])
    assert scheduler.remove_flow(flow) == [(100, packets[0])]


def test_a_rejected_packet_says_why():
    scheduler = fairlane.Scheduler("fifo")
    flow = scheduler.add_flow(1, 1000, limit_packets=1)
    scheduler.enqueue(flow, 1000, None)
    for length, reason in ((1000, "queue-full"), (1001, "too-long")):
        with pytest.raises(fairlane.Rejected) as error:
            scheduler.enqueue(flow, length, None)
        assert error.value.reason == reason
    with pytest.raises(fairlane.Rejected) as error:
        fairlane.Tree("qfq").enqueue(9, 100, None)
    assert error.value.reason == "unknown"
    with pytest.raises(fairlane.UnknownFlow):
        scheduler.stats(5)


def test_a_packet_that_refers_to_its_queue_is_collected_with_it():
    for make in (fairlane.Tree, fairlane.Scheduler):
        queue, packet = make("qfq"), Packet()
        packet.queue = queue
        owner = queue.leaf() if make is fairlane.Tree else queue.add_flow()
        queue.enqueue(owner, 100, packet)
        gone = weakref.ref(packet)
        del queue, packet
        gc.collect()
        assert gone() is None


def test_a_packet_whose_end_uses_its_queue_waits_for_nobody():
    tree = fairlane.Tree("qfq")
    leaf = tree.leaf()

    class Last:
        def __del__(self):
            tree.enqueue(leaf, 10, "from the end")

    tree.enqueue(leaf, 10, Last())
    tree.flush(leaf)
    tree.take_discarded()
    gc.collect()
    assert tree.dequeue() == (leaf, 10, "from the end")


@pytest.mark.parametrize("call", ["stats", "remove_flow"])
def test_an_exception_is_made_while_nothing_is_locked(monkeypatch, call):
    scheduler = fairlane.Scheduler("qfq")

    class Looks(fairlane.UnknownFlow):
        def __init__(self, *arguments):
            # Whatever runs here, another thread or the end of a packet, may use the scheduler.
            assert len(scheduler) == 0
            super().__init__(*arguments)

    monkeypatch.setattr(fairlane.errors, "UnknownFlow", Looks)
    with pytest.raises(Looks):
        getattr(scheduler, call)(7)

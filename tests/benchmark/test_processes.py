"""What a process keeps between its calls."""

from labelwise.benchmark.processes import keep_last_result


def test_the_last_result_is_kept_for_arguments_without_a_hash():
    calls = []

    @keep_last_result
    def total(numbers, *, scale=1):
        calls.append(numbers)
        return scale * sum(numbers)

    assert [total([1, 2]), total([1, 2]), total([1, 2], scale=2), total([1, 2])] == [3, 3, 6, 3]
    assert calls == [[1, 2]] * 3  # the second call was answered without the function

# The types of record_loop.py, for Cython. What is not here stays a Python object.

cimport cython

cdef long long TWO_BYTES_MAX
cdef long long INT_MAX
cdef int INT_BYTES_MAX
cdef int LONG_BYTES_MAX
cdef int LONG_LAST_SHIFT

@cython.locals(
    size=Py_ssize_t, stop=Py_ssize_t, end_row=Py_ssize_t, end=Py_ssize_t,
    skipped=Py_ssize_t, skipped_now=Py_ssize_t,
    length=cython.longlong, timestamp=cython.longlong, offset=cython.longlong,
    key=cython.longlong, value=cython.longlong, headers=cython.longlong,
)
cpdef tuple read_heads(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t row, Py_ssize_t limit,
    long long[::1] timestamps, long long[::1] offsets, unsigned char[::1] without_key,
)

@cython.locals(count=cython.longlong, length=cython.longlong, _=cython.longlong)
cdef Py_ssize_t headers_end(const unsigned char[::1] data, Py_ssize_t at) except -1

@cython.locals(
    byte=cython.longlong, half=cython.longlong, is_negative=cython.longlong, shift=cython.int, last=Py_ssize_t,
)
cdef (long long, Py_ssize_t) read_number(const unsigned char[::1] data, Py_ssize_t at, int bytes_max) except *

@cython.locals(
    oldest=cython.longlong, newest=cython.longlong, timestamp=cython.longlong,
    misplaced=Py_ssize_t, current=Py_ssize_t,
)
cpdef tuple summarize(
    long long[::1] timestamps, long long[::1] offsets, Py_ssize_t row, Py_ssize_t end_row, Py_ssize_t index,
)

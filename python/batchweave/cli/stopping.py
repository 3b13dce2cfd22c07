"""How a command is told to stop: the first SIGINT or SIGTERM asks for a clean end and gives it less than two seconds, a second one ends it at once."""
from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from typing import Any

#: From the first signal to the end of the process, whatever a store does.
_GRACE_S = 1.7
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """Raised by the first signal."""


class Stop:
    """Listens for signals: at once while waiting, and after the share in hand otherwise.

    Python runs a handler between two steps of the main thread, and there is none while that waits inside a client's library for a store that
    hangs. So a thread of its own is told of every signal too, and ends the process when no other thread did. That is survivable at any moment.
    """

    number = 0
    busy = False
    #: stderr holds nothing but a failure.
    is_quiet = False

    def listen(self) -> None:
        """Only where signals arrive: in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        told, teller = socket.socketpair()
        teller.setblocking(False)
        signal.set_wakeup_fd(teller.detach(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(told,), name="stopping", daemon=True).start()
        self._handle(self._on_signal)

    def _handle(self, handler: Any) -> None:
        for number in _SIGNALS:
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: Any) -> None:
        self.number = number
        self._handle(signal.SIG_DFL)
        if not self.busy:
            raise Stopped

    def _watch(self, told: socket.socket) -> None:
        number = 0
        while number not in _SIGNALS:
            number = told.recv(1)[0]
        told.settimeout(_GRACE_S)
        try:
            while told.recv(1)[0] not in _SIGNALS:
                pass
        except TimeoutError:
            if not self.is_quiet:
                name = signal.Signals(number).name
                sys.stderr.write(f"stopped by {name} before all was finished; the next process goes on from the log\n")
        os._exit(128 + number)

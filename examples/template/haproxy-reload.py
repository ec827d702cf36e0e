"""Asks HAProxy's master to reload, and fails with what it says if the new configuration does not serve.

    haproxy -W -S /run/haproxy-master.sock …
    bowline agent … --notify 'command:python3 haproxy-reload.py /run/haproxy-master.sock'

A check (haproxy -c) binds no port, so only the reload itself tells whether one is taken. HAProxy 2.7 and newer answer
with the result; older ones close the connection, and have a new worker when all went well.
"""
import socket
import sys
import time


def ask(command):
    with socket.socket(socket.AF_UNIX) as master:
        master.settimeout(5)
        master.connect(sys.argv[1])
        master.sendall(command.encode() + b"\n")
        master.shutdown(socket.SHUT_WR)
        answer = b""
        while part := master.recv(4096):
            answer += part
    return answer.decode(errors="replace")


def workers():
    """The processes that serve the newest configuration."""
    current = ask("show proc").split("# workers")[-1].split("# old workers")[0]
    return {line.split()[0] for line in current.splitlines() if " worker " in line.replace("\t", " ")}


before = workers()
said = ask("reload")
if "Success=" in said:
    sys.exit(None if "Success=1" in said else said)
for _ in range(50):
    try:
        if workers() - before:
            sys.exit()
    except OSError:
        pass  # The master begins anew.
    time.sleep(0.1)
sys.exit("HAProxy has no new worker: it serves on with the configuration before, and its log says why")

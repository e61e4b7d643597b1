#!/bin/sh
# Stage 1 of the lab's machine: the first process of the user-mode kernel.
#
# Knows: how to hide the outside. When stage 2 starts, `/` is an overlay whose lower layer is the outside file system
# mounted read-only and whose upper layer is memory, so that nothing done in the machine reaches the outside except
# through the control folder (mounted at /run/lab/control) and what stage 2 mounts on purpose.
# Disks, servers and commands are stage 2's (backupd/lab/guest.py).
#
# The kernel starts this file as CONTROL/init; CONTROL/boot.env holds the words in capitals below. Where INIT is systemd,
# it becomes the first process, with none of the outside's units but udev's and the bus's, and stage 2 is a service of
# it (`init stage-2`).

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL

control=${0%/*}

power_off() {
    sync
    echo o > /proc/sysrq-trigger
    sleep 60
}

fail() {
    echo "lab: stage 1 failed: $1"
    power_off
}

stage_2() {
    PYTHONPATH=$IMPORT_FROM "$PYTHON" -m backupd.lab.guest /run/lab/control/plan.json
    echo "lab: stage 2 ended with status $?"
    power_off
}

become_systemd() {
    units=/run/lab/units
    mkdir -p "$units" /run/systemd/system /run/lab/no-generators
    hostname > /etc/hostname # systemd sets it anew
    mount -t cgroup2 cgroup2 /sys/fs/cgroup || fail "no cgroup2"
    for target in sysinit basic shutdown umount multi-user timers sockets paths; do
        printf '[Unit]\nDefaultDependencies=no\n' > "$units/$target.target"
    done
    udev="systemd-udevd.service systemd-udevd-control.socket systemd-udevd-kernel.socket"
    for unit in dbus.socket dbus.service modprobe@.service $udev; do # `systemd-run --wait` asks by way of the bus
        ln -s "/lib/systemd/system/$unit" "$units"
    done
    cat > "$units/lab.service" <<- EOF
	[Unit]
	DefaultDependencies=no
	Wants=dbus.socket $udev
	After=dbus.socket $udev
	[Service]
	ExecStart=/bin/sh /run/lab/control/init stage-2
	StandardOutput=file:/dev/tty0
	TasksMax=infinity
	EOF
    # No other place is searched, and so nothing of the outside's is started.
    export SYSTEMD_UNIT_PATH="$units:/run/systemd/system:/run/systemd/transient"
    export SYSTEMD_GENERATOR_PATH=/run/lab/no-generators
    exec /lib/systemd/systemd --system --unit=lab.service --log-target=console --show-status=no
}

if [ "$1" = stage-2 ]; then
    . "$control/boot.env"
    stage_2
fi

mount -t proc proc /proc || fail "no /proc"
. "$control/boot.env" || fail "no boot.env in $control"

# /dev is memory already (devtmpfs): the only place under a read-only root where a folder can be made.
stage=/dev/lab
mkdir "$stage" && mount -t tmpfs lab "$stage" || fail "no memory for the overlay"
mkdir "$stage/lower" "$stage/upper" "$stage/work" "$stage/bare" "$stage/root"
root=$stage/root

# modprobe can't find the kernel's modules before /lib/modules exists, and that needs the overlay first.
insmod "$MODULES/kernel/fs/overlayfs/overlay.ko" || fail "no overlay module in $MODULES"
mount -t hostfs -o ro,/ outside "$stage/lower" || fail "no hostfs"
mount -t overlay -o "lowerdir=$stage/lower,upperdir=$stage/upper,workdir=$stage/work" lab "$root" || fail "no overlay"
mount --bind "$root" "$stage/bare"

for folder in proc sys dev run tmp; do
    mkdir -p "$root/$folder"
done
mount -t proc proc "$root/proc"
mount -t sysfs sys "$root/sys"
mount -t devtmpfs dev "$root/dev"
rm -f "$root"/dev/[pt]ty[a-z][0-9a-f] # 512 that only this kernel has: every LVM command looks at each of them
mount -t tmpfs -o mode=755 run "$root/run"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mount -t tmpfs -o mode=700 home "$root/root" # the outside's may be closed to the user who started the lab
mkdir -p "$root/dev/pts" "$root/dev/shm" "$root/run/lock/lvm" "$root/run/lab/control"
mount -t devpts -o ptmxmode=666 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
ln -sf pts/ptmx "$root/dev/ptmx"
for link in fd stdin stdout stderr; do
    case $link in
        fd) to=/proc/self/fd ;;
        stdin) to=/proc/self/fd/0 ;;
        stdout) to=/proc/self/fd/1 ;;
        stderr) to=/proc/self/fd/2 ;;
    esac
    [ -e "$root/dev/$link" ] || ln -s "$to" "$root/dev/$link"
done

# The project and its interpreter may lie under one of the folders that were just covered.
echo "$KEEP" | while IFS= read -r kept; do
    [ -n "$kept" ] && [ ! -e "$root$kept" ] || continue
    mkdir -p "$root$kept" && mount --bind "$stage/bare$kept" "$root$kept"
done

mount -t hostfs -o "$control" control "$root/run/lab/control" || fail "no control folder"

# pivot_root rather than chroot: the outside's hostfs is then no longer in the tree, not even for root.
cd "$root" && pivot_root . . && umount -l . && cd / || fail "pivot_root"

mkdir -p "/lib/modules" && ln -sfn "$MODULES" "/lib/modules/$(uname -r)"
ip link set lo up
hostname lab
echo "127.0.0.1 localhost lab" > /etc/hosts # mariadb-install-db looks both names up, and a bare root knows neither

[ "$INIT" = systemd ] && become_systemd
stage_2

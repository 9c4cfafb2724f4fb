import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Fills one kind of memory of a JVM, slowly enough to be watched, until something gives. */
public final class Provoke {
    /** What must not be collected. */
    static final List<Object> KEPT = new ArrayList<>();

    private Provoke() {}

    public static void main(String[] args) throws Throwable {
        switch (args[0]) {
            case "live" -> live();
            case "humongous" -> humongous();
            case "gc-bound" -> gcBound();
            case "cache" -> cache();
            case "direct" -> direct();
            case "threads" -> threads();
            case "sleepers" -> sleepers();
            case "beside" -> beside();
            case "metaspace" -> classes(false);
            case "code" -> classes(true);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    /** Small objects that are all still needed. */
    static void live() throws InterruptedException {
        for (int i = 0; ; i++) {
            KEPT.add(new byte[16 << 10]);
            if (i % 64 == 0) Thread.sleep(5);
        }
    }

    /** Every second region stays taken, so that an array of several regions finds no room although half of the heap is free. */
    static void humongous() throws InterruptedException {
        List<byte[]> half = new ArrayList<>();
        for (int i = 0; i < 56; i++) {
            byte[] one = new byte[600 << 10];
            if (i % 2 == 0) half.add(one);
            else KEPT.add(one);
            Thread.sleep(20);
        }
        half.clear();
        for (int mib = 4; ; mib += 2) {
            KEPT.add(new byte[mib << 20]);
            Thread.sleep(20);
        }
    }

    /** Nearly full of what is still needed, and busy making short-lived objects in the little that is left. */
    static void gcBound() {
        long room = Runtime.getRuntime().maxMemory();
        for (long held = 0; held < room * 58 / 100; held += 4096) KEPT.add(new byte[4096 - 16]);
        // A cache whose entries live long enough to be moved into the old generation, and no longer.
        byte[][] cache = new byte[(int) (room * 22 / 100 / 1024)][];
        for (int i = 0; ; i++) {
            cache[i % cache.length] = new byte[1024 - 16];
            // A little more is kept each time, so that it fails in the end.
            if (i % 16 == 0) KEPT.add(new byte[128]);
        }
    }

    /** A cache that says how large it is, and grows beyond where long-lived objects go. */
    static void cache() throws IOException, InterruptedException {
        Path told = Path.of(System.getenv("HEADROOM_CACHED_BYTES"));
        for (long cached = 0; ; cached += 1 << 20) {
            for (int i = 0; i < 16; i++) KEPT.add(new byte[64 << 10]);
            Files.writeString(told, Long.toString(cached + (1 << 20)));
            Thread.sleep(20);
        }
    }

    static void direct() throws InterruptedException {
        while (true) {
            ByteBuffer buffer = ByteBuffer.allocateDirect(1 << 20);
            for (int i = 0; i < buffer.capacity(); i += 4096) buffer.put(i, (byte) 1);
            KEPT.add(buffer);
            Thread.sleep(20);
        }
    }

    /** Threads that have gone deep once: their stacks stay. */
    static void threads() throws InterruptedException {
        while (true) {
            Thread thread = new Thread(null, () -> deep(900), "deep", 1 << 20);
            thread.setDaemon(true);
            thread.start();
            KEPT.add(thread);
            Thread.sleep(3);
        }
    }

    /** Threads that do nothing, until the host refuses one more. */
    static void sleepers() {
        while (true) {
            Thread thread = new Thread(null, () -> deep(0), "idle", 144 << 10);
            thread.setDaemon(true);
            thread.start();
            KEPT.add(thread);
        }
    }

    /** Memory of a native library, in some large blocks and many small ones: a little of everything, and too much beside a large heap. */
    static void beside() throws Exception {
        var field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        var unsafe = (sun.misc.Unsafe) field.get(null);
        for (int i = 0; ; i++) {
            long size = i < 32 ? 1 << 20 : 64 << 10;
            unsafe.setMemory(unsafe.allocateMemory(size), size, (byte) 1);
            Thread.sleep(i < 32 ? 10 : 1);
        }
    }

    static long deep(int left) {
        long a = left, b = a * 3, c = b ^ a, d = c + b;
        if (left == 0) {
            try {
                Thread.sleep(600_000);
            } catch (InterruptedException e) {
                return d;
            }
        }
        return deep(left - 1) + a + b + c + d;
    }

    /** Classes made here, one for each turn; with `run`, every method of theirs is run (and compiled, under -Xcomp). */
    static void classes(boolean run) throws Throwable {
        for (int i = 0; ; i++) {
            Loader loader = new Loader();
            Class<?> made = loader.define("C" + i, 1500, run);
            KEPT.add(made);
            KEPT.add(made.getMethods());
            if (run) for (int m = 1; m < 8; m++) made.getMethod("m" + m, int.class).invoke(null, i);
            Thread.sleep(1);
        }
    }

    static final class Loader extends ClassLoader {
        Class<?> define(String name, int size, boolean calls) throws IOException {
            byte[] bytes = ClassFile.of(name, size, calls);
            return defineClass(name, bytes, 0, bytes.length);
        }
    }

    /** A class file of the old format (no stack maps needed): static methods int m(int), of straight arithmetic or of calls. */
    static final class ClassFile {
        static byte[] of(String name, int size, boolean calls) throws IOException {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            DataOutputStream out = new DataOutputStream(bytes);
            int methods = 8;
            out.writeInt(0xCAFEBABE);
            out.writeInt(49);
            out.writeShort(10 + methods);
            utf8(out, name);
            out.writeByte(7);
            out.writeShort(1);
            utf8(out, "java/lang/Object");
            out.writeByte(7);
            out.writeShort(3);
            utf8(out, "Code");
            utf8(out, "(I)I");
            utf8(out, "leaf");
            utf8(out, "unused");
            out.writeByte(12); // name and type
            out.writeShort(7);
            out.writeShort(6);
            out.writeByte(10); // the method leaf of this class
            out.writeShort(2);
            out.writeShort(9);
            for (int m = 1; m < methods; m++) utf8(out, "m" + m);
            out.writeShort(0x21);
            out.writeShort(2);
            out.writeShort(4);
            out.writeShort(0);
            out.writeShort(0);
            out.writeShort(methods);
            method(out, 7, 0, false);
            for (int m = 1; m < methods; m++) method(out, 10 + m, size, calls);
            out.writeShort(0);
            return bytes.toByteArray();
        }

        static void utf8(DataOutputStream out, String text) throws IOException {
            out.writeByte(1);
            out.writeUTF(text);
        }

        static void method(DataOutputStream out, int name, int size, boolean calls) throws IOException {
            out.writeShort(0x9);
            out.writeShort(name);
            out.writeShort(6);
            out.writeShort(1);
            ByteArrayOutputStream code = new ByteArrayOutputStream();
            code.write(0x1A);
            for (int i = 0; i < size; i++) {
                if (calls) {
                    code.write(0xB8);
                    code.write(0);
                    code.write(10);
                } else {
                    code.write(0x1A);
                    code.write(i % 2 == 0 ? 0x60 : 0x82);
                }
            }
            code.write(0xAC);
            out.writeShort(5);
            out.writeInt(12 + code.size());
            out.writeShort(2);
            out.writeShort(1);
            out.writeInt(code.size());
            code.writeTo(out);
            out.writeShort(0);
            out.writeShort(0);
        }
    }
}

// RUN: rhino-opt %s --debug-info | filecheck %s
// RUN: rhino-opt %s --debug-info | rhino-opt --debug-info | filecheck %s

// CHECK: loc("model.py":3:7)
// CHECK: loc("layers.0"("model.py":4:1))
// CHECK: loc(callsite("f"("a.py":1:2) at "b.py":3:4))
// CHECK: loc(fused["x", "a.py":1:2])
func.func @main(%x: tensor<4xf32> loc("arg"("model.py":1:1))) -> tensor<4xf32> {
  %0 = hlo.exp %x : tensor<4xf32> loc("model.py":3:7 to :9)
  %1 = hlo.exp %0 : tensor<4xf32> loc(#loc4)
  %2 = hlo.exp %1 : tensor<4xf32> loc(callsite("f"(#loc1) at "b.py":3:4))
  %3 = hlo.exp %2 : tensor<4xf32> loc(fused["x", #loc1])
  func.return %3 : tensor<4xf32> loc(#loc)
}
#loc = loc(unknown)
#loc1 = loc("a.py":1:2)
#loc4 = loc("layers.0"("model.py":4:1 to 5:2))
